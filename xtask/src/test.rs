//! `cargo xtask test`: every test, after getting what they need.

use anyhow::Result;

use crate::step::{Outcome, Report};
use crate::workspace::{self, ModelCheck, Package};
use crate::{api_server, tools};

/// Which version of Kubernetes k8s-openapi stands for where no example or test of ours chooses it.
pub(crate) const K8S_OPENAPI: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.37");

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let mut assets = None;
    report.step("real API servers", || {
        Ok(match api_server::ensure() {
            Ok(found) => {
                let note = found.folder().display().to_string();
                assets = Some(found);
                Outcome::Passed(note)
            }
            Err(error) => Outcome::Skipped(format!("{error:#}")),
        })
    });

    let mut tests = tools::cargo();
    tests.args(["test", "--workspace"]);
    if let Some(assets) = &assets {
        // They are there: a test that cannot find them has failed.
        tests
            .env("KUBEBUILDER_ASSETS", assets.folder())
            .env("CLUSTERCACHE_REAL", "required");
    }
    report.command("tests", &mut tests);

    for package in workspace::packages()? {
        for check in &package.model_checks {
            model_check(report, &package, check);
        }
    }
    Ok(())
}

/// A model check is declared by its crate, as in
/// `[package.metadata.model-checks.loom]` with `cfg = "clustercache_loom"` and, for an integration test, `test = "loom"`.
fn model_check(report: &mut Report, package: &Package, check: &ModelCheck) {
    let mut command = tools::cargo();
    command
        .args(["test", "--release", "--package", &package.name])
        .env("RUSTFLAGS", format!("--cfg {}", check.cfg))
        // Other flags rebuild everything: apart, so that nothing else is rebuilt after it.
        .env("CARGO_TARGET_DIR", workspace::target().join("model-checks"))
        .env(K8S_OPENAPI.0, K8S_OPENAPI.1);
    match &check.test {
        Some(test) => command.args(["--test", test]),
        None => command.arg("--lib"),
    };
    report.command(
        format!("model check {} {}", package.name, check.name),
        &mut command,
    );
}
