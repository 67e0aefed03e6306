//! Several real kube-apiservers that share one etcd by prefix: all that starts and ends together.

use std::ops::{Index, IndexMut};
use std::path::Path;

use futures_util::future::try_join_all;
use tempfile::TempDir;

use super::binaries::Binaries;
use super::watchdog::Watchdog;
use super::{RealApiServer, RealError, RealEtcd};

/// How often new ports are tried where somebody else was faster to bind one.
const TRIES: usize = 3;

/// One etcd, and the kube-apiservers that share it. All end with this value.
///
/// An API server is reached by its index.
#[derive(Debug)]
pub struct RealApiServers {
    // In the order in which they must go.
    servers: Vec<RealApiServer>,
    etcd: RealEtcd,
    _watchdog: Watchdog,
    _folder: TempDir,
}

impl RealApiServers {
    /// Starts one etcd and that many kube-apiservers, side by side, and returns when all are ready.
    pub async fn start(servers: usize) -> Result<Self, RealError> {
        let binaries = Binaries::find()?;
        let mut tried = 1;
        loop {
            match Self::start_once(&binaries, servers).await {
                Err(error) if error.is_port_taken() && tried < TRIES => tried += 1,
                done => return done,
            }
        }
    }

    async fn start_once(binaries: &Binaries, servers: usize) -> Result<Self, RealError> {
        let folder = tempfile::Builder::new()
            .prefix("clustercache-real-")
            .tempdir()
            .map_err(RealError::io("make a temporary folder"))?;
        let mut watchdog = Watchdog::over(folder.path())?;
        let etcd =
            RealEtcd::start(&binaries.etcd, folder.path(), |group| watchdog.watch(group)).await?;
        let started = {
            let start = |index| {
                let folder: &Path = folder.path();
                RealApiServer::start(&binaries.kube_apiserver, folder, index, &etcd)
            };
            try_join_all((0..servers).map(start)).await?
        };
        Ok(Self {
            servers: started,
            etcd,
            _watchdog: watchdog,
            _folder: folder,
        })
    }

    /// The etcd.
    pub fn etcd(&self) -> &RealEtcd {
        &self.etcd
    }

    /// How many API servers there are, running or not.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is no API server, only the etcd.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The API servers.
    pub fn iter(&self) -> impl Iterator<Item = &RealApiServer> {
        self.servers.iter()
    }
}

impl Index<usize> for RealApiServers {
    type Output = RealApiServer;

    fn index(&self, index: usize) -> &RealApiServer {
        &self.servers[index]
    }
}

impl IndexMut<usize> for RealApiServers {
    fn index_mut(&mut self, index: usize) -> &mut RealApiServer {
        &mut self.servers[index]
    }
}
