//! Which versions of kube-apiserver and etcd are wanted, and the folders that keep them, and the clients in Go, once they are built.
//!
//! The versions stand in one place only: the `go.mod` files beside this crate. The test kit includes this very file, so
//! that what `cargo xtask api-server` and `cargo xtask go-clients` build is what the tests look for.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The environment variable that says where everything of ours is cached, in place of the user's cache folder.
pub(crate) const CACHE_VARIABLE: &str = "CLUSTERCACHE_CACHE";

const KUBE_APISERVER_MOD: &str = include_str!("../api-server/kube-apiserver/go.mod");
const ETCD_MOD: &str = include_str!("../api-server/etcd/go.mod");

/// The version of `k8s.io/kubernetes`, as in `v1.37.2`.
pub(crate) fn kube_apiserver_version() -> &'static str {
    required_version(KUBE_APISERVER_MOD, "k8s.io/kubernetes")
}

/// The version of `go.etcd.io/etcd/server/v3`, as in `v3.7.3`.
pub(crate) fn etcd_version() -> &'static str {
    required_version(ETCD_MOD, "go.etcd.io/etcd/server/v3")
}

/// The folder of everything that is cached: `$CLUSTERCACHE_CACHE`, else `clustercache` in the user's cache folder.
pub(crate) fn cache_root() -> Option<PathBuf> {
    let set =
        |name: &str| -> Option<OsString> { env::var_os(name).filter(|value| !value.is_empty()) };
    if let Some(root) = set(CACHE_VARIABLE) {
        return Some(PathBuf::from(root));
    }
    let user = set("XDG_CACHE_HOME")
        .or_else(|| set("LOCALAPPDATA"))
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(user.join("clustercache"))
}

/// The folder that holds the two binaries of the versions wanted, laid out like `$KUBEBUILDER_ASSETS`.
pub(crate) fn api_server_dir() -> Option<PathBuf> {
    let versions = format!(
        "kube-apiserver-{}-etcd-{}",
        kube_apiserver_version(),
        etcd_version()
    );
    Some(cache_root()?.join("api-server").join(versions))
}

/// What the clients in Go are built of (`testkit/conformance`).
const GO_CLIENTS: [&str; 3] = [
    include_str!("../../testkit/conformance/main.go"),
    include_str!("../../testkit/conformance/go.mod"),
    include_str!("../../testkit/conformance/go.sum"),
];

/// The folder that holds the program `go-clients`, as these sources make it.
pub(crate) fn go_clients_dir() -> Option<PathBuf> {
    // FNV-1a: it tells one text from another, and no more.
    let hash = GO_CLIENTS
        .iter()
        .flat_map(|text| text.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    Some(
        cache_root()?
            .join("go-clients")
            .join(format!("{hash:016x}")),
    )
}

/// The version that a `go.mod` requires of a module; a file of ours without it would be a mistake in this repository.
fn required_version(go_mod: &'static str, module: &str) -> &'static str {
    go_mod
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("require ")
                .strip_prefix(module)
        })
        .filter_map(|rest| rest.split_whitespace().next())
        .find(|word| word.starts_with('v'))
        .unwrap_or("unknown")
}
