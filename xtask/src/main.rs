//! `cargo xtask …`: set-up and checks for whoever works on clustercache.
//!
//! `test` is what a user runs, `ci` is what a change must pass, `api-server` and `go-clients` build what tests run
//! that others wrote. Each gets by itself what it needs; what it cannot get it leaves out, and says so at its end.

mod api_server;
mod api_server_cache;
mod ci;
mod programs;
mod step;
mod test;
mod tools;
mod workspace;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::step::Report;

const USAGE: &str = "\
cargo xtask test          every test, with the real API servers where they can be had
cargo xtask ci [--fast]   test, format, clippy, docs, each crate alone, examples (not with --fast), cargo deny
cargo xtask api-server    build kube-apiserver and etcd once, and print where they are
cargo xtask go-clients    build the clients in Go once that the tests of the API server in memory run, and print where they are

KUBEBUILDER_ASSETS        a folder with kube-apiserver and etcd, used in place of ones built here
CLUSTERCACHE_CACHE        where what is built and installed is kept, in place of the user's cache folder";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<ExitCode> {
    let mut report = Report::default();
    match arguments {
        ["test"] => test::run(&mut report),
        ["ci"] => ci::run(&mut report, ci::Extent::Whole)?,
        ["ci", "--fast"] => ci::run(&mut report, ci::Extent::Fast)?,
        ["api-server"] => {
            let assets = api_server::ensure()?;
            println!("{}", assets.kube_apiserver().display());
            println!("{}", assets.etcd().display());
            return Ok(ExitCode::SUCCESS);
        }
        ["go-clients"] => {
            println!("{}", api_server::ensure_go_clients()?.display());
            return Ok(ExitCode::SUCCESS);
        }
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        other => bail!("unknown: {}\n\n{USAGE}", other.join(" ")),
    }
    Ok(report.close())
}
