//! `cargo xtask test`: every test, after getting what they need.

use std::process::Command;

use crate::step::{self, Outcome, Report};
use crate::{api_server, programs, tools, workspace};

/// Which version of Kubernetes k8s-openapi stands for where no example or test of ours chooses it.
pub(crate) const K8S_OPENAPI: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.37");

pub(crate) fn run(report: &mut Report) {
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

    let mut clients = false;
    report.step("clients in Go", || {
        Ok(match api_server::ensure_go_clients() {
            Ok(program) => {
                clients = true;
                Outcome::Passed(program.display().to_string())
            }
            Err(error) => Outcome::Skipped(format!("{error:#}")),
        })
    });

    let real = |tests: &mut Command| {
        if let Some(assets) = &assets {
            tests.env("KUBEBUILDER_ASSETS", assets.folder());
        }
        if assets.is_some() && clients {
            // All is there: a test that cannot find it has failed.
            tests.env("CLUSTERCACHE_REAL", "required");
        }
    };
    // All that fails is worth knowing at once.
    report.tests("tests", || programs::run(&programs::build()?, real));
    let mut examples = tools::cargo();
    examples.args([
        "test",
        "--workspace",
        "--all-features",
        "--no-fail-fast",
        "--doc",
    ]);
    report.tests("tests in the docs", || step::stream(&mut examples, None));

    for checker in ["shuttle", "loom"] {
        model_check(report, checker);
    }
}

/// The core's protocols under schedules that a model checker chooses; `models/Cargo.toml` says more. A million schedules:
/// `CLUSTERCACHE_SCHEDULES=1000000 cargo xtask test`.
fn model_check(report: &mut Report, checker: &str) {
    let mut command = tools::cargo();
    command
        .args(["test", "--manifest-path", "models/Cargo.toml"])
        .args(["--features", checker, "::model::"])
        // Most of its dependencies are the workspace's.
        .env("CARGO_TARGET_DIR", workspace::target());
    report.tests(format!("model check with {checker}"), || {
        step::stream(&mut command, None)
    });
}
