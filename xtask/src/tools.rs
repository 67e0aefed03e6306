//! The tools that a check needs: found, or installed by name.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{api_server_cache, workspace};

const CARGO_DENY: &str = "0.20.2";

/// The cargo that runs this, in the workspace's folder.
pub(crate) fn cargo() -> Command {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    workspace::command(&cargo)
}

/// Whether a program answers to this.
pub(crate) fn answers(program: &str, arguments: &[&str]) -> bool {
    workspace::command(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Makes sure of `cargo fmt` or `cargo clippy`.
pub(crate) fn component(name: &str) -> Result<()> {
    let subcommand = name.trim_start_matches("rust");
    if answers("cargo", &[subcommand, "--version"]) {
        return Ok(());
    }
    let status = workspace::command("rustup")
        .args(["component", "add", name])
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{name} is missing, and so is rustup"))?;
    ensure!(
        status.success(),
        "{name} is missing and cannot be installed"
    );
    Ok(())
}

/// Where cargo-deny is: on the path, or installed into the cache.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    if answers("cargo-deny", &["--version"]) {
        return Ok("cargo-deny".into());
    }
    let Some(cache) = api_server_cache::cache_root() else {
        bail!("cargo-deny is missing, and there is no folder to install it into");
    };
    let root = cache.join("tools").join(format!("cargo-deny-{CARGO_DENY}"));
    let program = root
        .join("bin")
        .join(format!("cargo-deny{}", env::consts::EXE_SUFFIX));
    if program.is_file() {
        return Ok(program);
    }
    eprintln!(
        "cargo-deny is missing: installing it into {}",
        root.display()
    );
    let status = cargo()
        .args([
            "install",
            "--locked",
            "cargo-deny",
            "--version",
            CARGO_DENY,
            "--root",
        ])
        .arg(&root)
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .status()
        .context("run cargo install")?;
    ensure!(
        status.success(),
        "cargo-deny is missing and cannot be installed"
    );
    Ok(program)
}
