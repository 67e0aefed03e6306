//! What `cargo metadata` says of this workspace: its crates, features and examples.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::tools;

/// A crate of this workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    pub(crate) examples: Vec<String>,
    pub(crate) rust_version: Option<String>,
}

/// The folder of the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// Every crate of this workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let output = tools::cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", output.status);
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata: no packages")?;
    packages.iter().map(package).collect()
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command that runs in the workspace's folder.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

fn package(package: &Value) -> Result<Package> {
    let features = package["features"]
        .as_object()
        .context("a package without features")?;
    let targets = package["targets"]
        .as_array()
        .context("a package without targets")?;
    let is_example = |target: &&Value| {
        strings(&target["kind"])
            .iter()
            .any(|kind| kind == "example")
    };
    Ok(Package {
        name: text(&package["name"])?,
        features: features
            .keys()
            .filter(|name| *name != "default")
            .cloned()
            .collect(),
        examples: targets
            .iter()
            .filter(is_example)
            .map(|target| text(&target["name"]))
            .collect::<Result<_>>()?,
        rust_version: package["rust_version"].as_str().map(str::to_owned),
    })
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).context("not a string")
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
