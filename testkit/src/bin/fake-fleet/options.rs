//! What the command line asks for.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

const USAGE: &str = "\
usage: fake-fleet --clusters N
  --first K               the number of the first cluster: a large fleet can be several processes
  --pods N                pods in each cluster
  --changes-per-second N  changes of pods, over all clusters
  --kubeconfig-dir DIR    one kubeconfig a cluster, and all.yaml
  --kubeconfig-out PATH   one kubeconfig of all clusters
  --control PORT          of the control endpoint, at 127.0.0.1; any free one by default
  --no-input              take no commands on standard input, and do not end with it
  --one-ca                one CA for all clusters, in place of one each
  --port-each             a port a cluster, in place of an address of loopback
  --http1                 no HTTP/2";

#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Options {
    pub(crate) clusters: usize,
    pub(crate) first: usize,
    pub(crate) pods: usize,
    pub(crate) changes_per_second: usize,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) control: u16,
    pub(crate) input: bool,
    pub(crate) one_ca: bool,
    pub(crate) port_each: bool,
    pub(crate) http2: bool,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self {
            clusters: 0,
            first: 0,
            pods: 0,
            changes_per_second: 0,
            folder: None,
            kubeconfig: None,
            control: 0,
            input: true,
            one_ca: false,
            port_each: false,
            http2: true,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().context(USAGE);
            let number = |text: String| {
                let number = text.parse::<usize>();
                number.with_context(|| format!("{argument} takes a number"))
            };
            match argument.as_str() {
                "--clusters" => options.clusters = number(value()?)?,
                "--first" => options.first = number(value()?)?,
                "--pods" => options.pods = number(value()?)?,
                "--changes-per-second" => options.changes_per_second = number(value()?)?,
                "--kubeconfig-dir" => options.folder = Some(value()?.into()),
                "--kubeconfig-out" => options.kubeconfig = Some(value()?.into()),
                "--control" => {
                    options.control = value()?.parse().context("--control takes a port")?;
                }
                "--no-input" => options.input = false,
                "--one-ca" => options.one_ca = true,
                "--port-each" => options.port_each = true,
                "--http1" => options.http2 = false,
                other => bail!("`{}` is unknown; {USAGE}", other.escape_debug()),
            }
        }
        ensure!(options.clusters > 0, "how many clusters? {USAGE}");
        let idle = options.changes_per_second > 0 && options.pods == 0;
        ensure!(!idle, "without --pods there is nothing to change");
        Ok(options)
    }
}
