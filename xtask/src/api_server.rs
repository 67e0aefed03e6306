//! Builds kube-apiserver and etcd from their Go modules, and the clients in Go of the test kit, once for all checkouts.
//!
//! What is built, and from which modules, stands in `api-server/*/go.mod` and `testkit/conformance/go.mod`. Two builds at once wait for each other, and
//! one that is interrupted leaves nothing that looks finished.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{api_server_cache, tools, workspace};

/// A folder with both programs.
#[derive(Debug)]
pub(crate) struct Assets(PathBuf);

impl Assets {
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    pub(crate) fn kube_apiserver(&self) -> PathBuf {
        self.0.join("kube-apiserver")
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.0.join("etcd")
    }

    fn complete(&self) -> bool {
        self.kube_apiserver().is_file() && self.etcd().is_file()
    }
}

/// Both programs: those of `KUBEBUILDER_ASSETS`, those of the cache, or built now.
pub(crate) fn ensure() -> Result<Assets> {
    if let Some(folder) = env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
        let assets = Assets(PathBuf::from(folder));
        let folder = assets.folder().display();
        ensure!(
            assets.complete(),
            "KUBEBUILDER_ASSETS ({folder}) lacks kube-apiserver or etcd"
        );
        return Ok(assets);
    }
    let folder = api_server_cache::api_server_dir()
        .with_context(|| format!("no cache folder: set {}", api_server_cache::CACHE_VARIABLE))?;
    let assets = Assets(folder);
    if assets.complete() {
        return Ok(assets);
    }
    if !tools::answers("go", &["version"]) {
        bail!("Go is missing (and KUBEBUILDER_ASSETS is not set)");
    }
    fs::create_dir_all(assets.folder())?;
    let _lock = lock(assets.folder())?;
    remove_partials(assets.folder())?;
    build(&assets.etcd(), "etcd", "go.etcd.io/etcd/server/v3", "")?;
    let kube_apiserver = "k8s.io/kubernetes/cmd/kube-apiserver";
    build(
        &assets.kube_apiserver(),
        "kube-apiserver",
        kube_apiserver,
        &version_flags()?,
    )?;
    remove_partials(assets.folder())?;
    Ok(assets)
}

/// The clients in Go with which the tests ask the API server in memory: that of the cache, or built now.
pub(crate) fn ensure_go_clients() -> Result<PathBuf> {
    let folder = api_server_cache::go_clients_dir()
        .with_context(|| format!("no cache folder: set {}", api_server_cache::CACHE_VARIABLE))?;
    let program = folder.join("go-clients");
    if program.is_file() {
        return Ok(program);
    }
    if !tools::answers("go", &["version"]) {
        bail!("Go is missing");
    }
    fs::create_dir_all(&folder)?;
    let _lock = lock(&folder)?;
    remove_partials(&folder)?;
    go_build(&program, "testkit/conformance", ".", "")?;
    remove_partials(&folder)?;
    Ok(program)
}

/// Held until it is dropped, also by the death of this process.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another build of the API server");
        file.lock()
            .with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}

/// What interrupted builds left.
fn remove_partials(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "partial")
        {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn build(program: &Path, module: &str, package: &str, version: &str) -> Result<()> {
    go_build(
        program,
        &format!("xtask/api-server/{module}"),
        package,
        version,
    )
}

/// Builds a program of a module in this repository.
fn go_build(program: &Path, module: &str, package: &str, version: &str) -> Result<()> {
    // Whoever had the lock before may have made it.
    if program.is_file() {
        return Ok(());
    }
    eprintln!("building {package} of {module}: a few minutes, once");
    let start = Instant::now();
    // A name of its own: the Go of a build that was killed may still be writing.
    let partial = program.with_extension(format!("{}.partial", process::id()));
    let status = workspace::command("go")
        .current_dir(workspace::root().join(module))
        .args(["build", "-trimpath", "-ldflags"])
        .arg(format!("-s -w{version}"))
        .arg("-o")
        .arg(&partial)
        .arg(package)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("run go build")?;
    ensure!(status.success(), "go build {package}: {status}");
    fs::rename(&partial, program).with_context(|| format!("name {}", program.display()))?;
    eprintln!(
        "built {} in {:.0} s",
        program.display(),
        start.elapsed().as_secs_f32()
    );
    Ok(())
}

/// Without these, clients see v0.0.0.
fn version_flags() -> Result<String> {
    let version = api_server_cache::kube_apiserver_version();
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("go.mod has k8s.io/kubernetes at {version}");
    };
    let package = "k8s.io/component-base/version";
    Ok(format!(
        " -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    ))
}
