//! Where the binaries are: `$KUBEBUILDER_ASSETS` where that is set, else what `cargo xtask api-server` cached.

use std::env;
use std::path::{Path, PathBuf};

use super::RealError;

// The one place that knows versions and folder; see there.
#[path = "../../../xtask/src/api_server_cache.rs"]
#[allow(dead_code, reason = "xtask needs more of it")]
mod api_server_cache;

/// The two programs.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) kube_apiserver: PathBuf,
    pub(super) etcd: PathBuf,
}

impl Binaries {
    pub(super) fn find() -> Result<Self, RealError> {
        let assets = env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty());
        if let Some(folder) = assets {
            return Self::within(Path::new(&folder), "KUBEBUILDER_ASSETS");
        }
        let folder = api_server_cache::api_server_dir().ok_or_else(|| RealError::Unavailable {
            why: format!(
                "neither HOME nor {} is set",
                api_server_cache::CACHE_VARIABLE
            ),
        })?;
        Self::within(&folder, "the cache")
    }

    fn within(folder: &Path, named: &str) -> Result<Self, RealError> {
        let program = |name: &str| {
            let path = folder.join(name);
            if path.is_file() {
                return Ok(path);
            }
            Err(RealError::Unavailable {
                why: format!("{named} ({}) has no {name}", folder.display()),
            })
        };
        Ok(Self {
            kube_apiserver: program("kube-apiserver")?,
            etcd: program("etcd")?,
        })
    }
}
