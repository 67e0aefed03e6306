//! `cargo xtask test`: every test, after getting what they need.

use crate::step::{Outcome, Report};
use crate::workspace;
use crate::{api_server, tools};

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

    let mut tests = tools::cargo();
    // All that fails is worth knowing at once.
    tests.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    if let Some(assets) = &assets {
        // They are there: a test that cannot find them has failed.
        tests
            .env("KUBEBUILDER_ASSETS", assets.folder())
            .env("CLUSTERCACHE_REAL", "required");
    }
    report.command("tests", &mut tests);

    for checker in ["shuttle", "loom"] {
        model_check(report, checker);
    }
}

/// The core's protocols under schedules that a model checker chooses; `models/Cargo.toml` says more. A million schedules:
/// `CLUSTERCACHE_SCHEDULES=1000000 cargo xtask test`.
fn model_check(report: &mut Report, checker: &str) {
    let mut command = tools::cargo();
    command
        .args([
            "test",
            "--release",
            "--manifest-path",
            "models/Cargo.toml",
            "::model::",
        ])
        .env("RUSTFLAGS", format!("--cfg clustercache_{checker}"))
        // Other flags rebuild everything: apart, so that nothing else is rebuilt after it.
        .env("CARGO_TARGET_DIR", workspace::target().join("model-checks"));
    report.command(format!("model check with {checker}"), &mut command);
}
