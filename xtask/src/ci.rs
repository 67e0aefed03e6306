//! `cargo xtask ci`: what a change must pass. Cheap steps first, so that a mistake is known soon.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::step::{self, Outcome, Report};
use crate::test::{self, K8S_OPENAPI};
use crate::tools;
use crate::workspace::{self, Package};

/// An example shows its point by itself, and ends.
const EXAMPLE_WITHIN: Duration = Duration::from_secs(120);
/// Where the network swallows what is sent, nobody waits longer for the advisories.
const FETCH_WITHIN: Duration = Duration::from_secs(120);

/// How much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// Without the examples.
    Fast,
}

pub(crate) fn run(report: &mut Report, extent: Extent) -> Result<()> {
    let packages = workspace::packages()?;
    report.command(
        "Cargo.lock is current",
        cargo(&["fetch", "--locked"]).env("CARGO_TERM_PROGRESS_WHEN", "never"),
    );
    report.step("rust-version", || rust_version(&packages));
    with_component(
        report,
        "format",
        "rustfmt",
        &mut cargo(&["fmt", "--all", "--check"]),
    );
    // Also holds the rust-version: clippy::incompatible_msrv knows since when the standard library has what we use.
    let clippy = "clippy --workspace --all-targets --all-features -- -D warnings";
    with_component(report, "clippy", "clippy", &mut cargo(&words(clippy)));
    test::run(report);
    let mut docs = cargo(&words("doc --no-deps --workspace --all-features"));
    docs.env("RUSTDOCFLAGS", "-D warnings")
        .env(K8S_OPENAPI.0, K8S_OPENAPI.1);
    report.command("docs", &mut docs);
    for package in &packages {
        alone(report, package);
    }
    match extent {
        Extent::Whole => examples(report, &packages),
        Extent::Fast => report.leave_out("examples (--fast)".to_owned()),
    }
    deny(report);
    Ok(())
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = tools::cargo();
    command.args(arguments);
    command
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn with_component(report: &mut Report, name: &str, component: &str, command: &mut Command) {
    match tools::component(component) {
        Ok(()) => report.command(name, command),
        Err(why) => report.step(name, || Ok(Outcome::Skipped(format!("{why:#}")))),
    }
}

/// Each crate states the oldest Rust that builds it.
fn rust_version(packages: &[Package]) -> Result<Outcome> {
    let mut stated = Vec::new();
    for package in packages {
        match &package.rust_version {
            Some(version) if !stated.contains(version) => stated.push(version.clone()),
            Some(_) => {}
            None => bail!("{} states no rust-version", package.name),
        }
    }
    Ok(Outcome::Passed(format!("stated: {}", stated.join(", "))))
}

/// A crate must build without what the others switch on: bare, with each feature, and with all.
fn alone(report: &mut Report, package: &Package) {
    report.step(format!("{} alone", package.name), || {
        let mut sets = vec![words("--no-default-features"), Vec::new()];
        sets.extend(
            package
                .features
                .iter()
                .map(|feature| vec!["--no-default-features", "--features", feature]),
        );
        if package.features.len() > 1 {
            sets.push(words("--all-features"));
        }
        if package.features.is_empty() {
            sets.truncate(1);
        }
        for set in &sets {
            // By clippy: what the whole workspace's has built is not built again, as it would be under flags of its own.
            let mut check = cargo(&["clippy", "--package", &package.name]);
            check
                .args(set)
                .args(["--", "-D", "warnings"])
                .env(K8S_OPENAPI.0, K8S_OPENAPI.1);
            if !step::stream(&mut check, None)?
                .status
                .is_some_and(|status| status.success())
            {
                return Ok(Outcome::Failed(format!("cargo clippy {}", set.join(" "))));
            }
        }
        Ok(Outcome::Passed(format!("{} sets of features", sets.len())))
    });
}

fn examples(report: &mut Report, packages: &[Package]) {
    let with_examples = packages
        .iter()
        .filter(|package| !package.examples.is_empty());
    for package in with_examples {
        for example in &package.examples {
            report.step(format!("example {example}"), || {
                // Built apart, so that its time is its own.
                let built = step::stream(&mut example_command("build", package, example), None)?;
                if !built.status.is_some_and(|status| status.success()) {
                    return Ok(built.outcome());
                }
                let mut run = example_command("run", package, example);
                Ok(step::stream(&mut run, Some(EXAMPLE_WITHIN))?.outcome())
            });
        }
    }
}

/// In release, as the README's first command is. That it works is the point here, so the optimiser's minutes are spared.
fn example_command(verb: &str, package: &Package, example: &str) -> Command {
    let mut command = cargo(&[verb, "--release", "--package", &package.name]);
    command
        .args(["--example", example])
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
    command
}

fn deny(report: &mut Report) {
    let mut program = None;
    report.step("cargo deny", || {
        let found = match tools::cargo_deny() {
            Ok(found) => program.insert(found),
            Err(why) => return Ok(Outcome::Skipped(format!("{why:#}"))),
        };
        let check = "--all-features check bans licenses sources";
        Ok(step::stream(&mut deny_command(found, check), None)?.outcome())
    });
    let Some(program) = program else {
        return;
    };
    report.step("cargo deny advisories", || {
        let fetched = step::stream(&mut deny_command(&program, "fetch db"), Some(FETCH_WITHIN))?;
        if !fetched.status.is_some_and(|status| status.success()) {
            return Ok(Outcome::Skipped("their database cannot be had".to_owned()));
        }
        let check = "--all-features check --disable-fetch advisories";
        Ok(step::stream(&mut deny_command(&program, check), None)?.outcome())
    });
}

fn deny_command(program: &Path, arguments: &str) -> Command {
    let mut command = workspace::command(&program.to_string_lossy());
    command.args(words(arguments));
    command
}
