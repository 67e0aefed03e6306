//! Clients that others wrote, in Go: informers of client-go and caches of controller-runtime (`testkit/conformance`), each over a cluster of its
//! own that is in trouble of its own. While it is, something changes; afterwards the client must hold what the server holds, and go on.

use std::{collections::BTreeMap, fs::File, path::PathBuf, process::Stdio, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clustercache_testkit::{
    api::{Fault, Verb},
    fleet::FakeCluster,
    real::{RealError, or_skip},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
};

use crate::{client::soon, programs::go_clients_dir};

/// Clients back off, up to half a minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is held of each cluster.
type Held = BTreeMap<String, Value>;

fn program() -> Result<PathBuf, RealError> {
    let unavailable = |why: String| RealError::Unavailable { why };
    let folder =
        go_clients_dir().ok_or_else(|| unavailable("there is no cache folder".to_owned()))?;
    let program = folder.join("go-clients");
    if program.is_file() {
        return Ok(program);
    }
    Err(unavailable(format!(
        "{} is missing: run `cargo xtask go-clients`",
        program.display()
    )))
}

/// The program, and what it says.
struct Clients {
    held: watch::Receiver<Held>,
    folder: TempDir,
    _child: Child,
}

impl Clients {
    fn start(
        program: &PathBuf,
        kind: &str,
        environment: &[(&str, &str)],
        clusters: &[Cluster],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for cluster in clusters {
            cluster.write_credential(&folder);
        }
        let kubeconfig = folder.path().join("config");
        std::fs::write(
            &kubeconfig,
            kubeconfig_with_programs(clusters, &folder).to_string(),
        )
        .unwrap();
        let mut child = Command::new(program)
            .arg(kind)
            .arg(kubeconfig)
            .envs(environment.iter().copied())
            // It ends when this does.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (said, held) = watch::channel(Held::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let (cluster, all) = line.split_once(' ').unwrap();
                let all = serde_json::from_str(all).unwrap();
                said.send_modify(|held| drop(held.insert(cluster.to_owned(), all)));
            }
        });
        Self {
            held,
            folder,
            _child: child,
        }
    }

    /// Waits until it holds what the cluster does.
    async fn hold_all_of(&self, cluster: &Cluster, when: &str) {
        let wanted = cluster.objects();
        let mut held = self.held.clone();
        let all_held = held.wait_for(|held| held.get(cluster.name) == Some(&wanted));
        match tokio::time::timeout(PATIENCE, all_held).await {
            Ok(Ok(_)) => {}
            // It has ended, or it does not.
            _ => panic!(
                "{} {when}: held {:?}, there is {wanted}\n{}\n{}",
                cluster.name,
                self.held.borrow().get(cluster.name),
                cluster.fake.api().history(),
                std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default(),
            ),
        }
    }
}

/// One cluster and its trouble.
struct Cluster {
    name: &'static str,
    trouble: Trouble,
    fake: FakeCluster,
}

/// What happens to a cluster while something changes.
enum Trouble {
    /// A fault that all requests meet.
    Requests(Fault),
    /// A fault that watches meet, open or new, and after which a client asks again.
    Watches(Fault),
    /// A fault that watches meet, and that no client notices.
    Silent(Fault),
    /// A fault that holds from before the client's first request on.
    Throughout(Fault),
    /// Watches end as they do by their timeout, and go on where they were.
    Ended,
    /// Connections break, and none can be made for a while.
    Cut,
    /// What was missed is forgotten meanwhile.
    Compacted,
    /// Versions go back to those of a backup, and are given out again.
    Restored,
    /// The token is another one.
    Token,
    /// Another API server takes over, at the same address, with none of the old objects' UIDs.
    Replaced,
}

fn troubles() -> Vec<(&'static str, Trouble)> {
    let requests = |fault: Fault| Trouble::Requests(fault.resource("configmaps"));
    vec![
        ("ended", Trouble::Ended),
        ("cut", Trouble::Cut),
        ("compacted", Trouble::Compacted),
        ("restored", Trouble::Restored),
        ("replaced", Trouble::Replaced),
        ("token", Trouble::Token),
        ("busy", requests(Fault::status(429).retry_after(1))),
        ("broken", requests(Fault::status(500))),
        ("unavailable", requests(Fault::status(503))),
        ("unauthorized", requests(Fault::unauthorized())),
        ("forbidden", requests(Fault::forbidden())),
        ("gone", requests(Fault::gone())),
        ("hanging", requests(Fault::hang())),
        ("half", requests(Fault::status(500).share(0.5))),
        (
            "old-discovery",
            Trouble::Throughout(Fault::without_aggregated_discovery()),
        ),
        ("watch-expired", Trouble::Watches(Fault::watch_expired())),
        ("watch-ended", Trouble::Watches(Fault::watch_ended())),
        ("watch-stalled", Trouble::Silent(Fault::watch_stalled())),
        (
            "watch-without-bookmarks",
            Trouble::Silent(Fault::watch_without_bookmarks()),
        ),
        (
            "watch-cut",
            Trouble::Watches(Fault::watch_cut_after(Duration::from_millis(100))),
        ),
        (
            "watch-cut-by-events",
            Trouble::Watches(Fault::watch_cut_after_events(1)),
        ),
    ]
}

impl Cluster {
    fn start(name: &'static str, trouble: Trouble) -> Self {
        let fake = FakeCluster::start(name).unwrap();
        if let Trouble::Throughout(fault) = &trouble {
            fake.api().inject(fault.clone());
        }
        let this = Self {
            name,
            trouble,
            fake,
        };
        this.put("first", "1");
        this
    }

    fn credential(&self, folder: &TempDir) -> PathBuf {
        folder.path().join(self.name)
    }

    fn write_credential(&self, folder: &TempDir) {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": { "token": self.fake.token() },
        });
        std::fs::write(self.credential(folder), credential.to_string()).unwrap();
    }

    fn put(&self, name: &str, value: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "value": value },
        });
        self.fake.put(object).unwrap();
    }

    /// As the clients say it.
    fn objects(&self) -> Value {
        let names = ["first", "second", "third", "fourth"];
        let one = |name: &&str| {
            let object = self.fake.api().get("v1", "ConfigMap", "default", name)?;
            Some((format!("default/{name}"), object["data"]["value"].clone()))
        };
        names
            .iter()
            .filter_map(one)
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// All requests for objects until now.
    fn asked(&self) -> u64 {
        let requests = self.fake.counters().requests;
        requests.list + requests.watch
    }

    /// Waits until the client has asked for more than `asked`.
    async fn asks_again(&self, asked: u64) {
        let more = |counters: &clustercache_testkit::fleet::Counters| {
            counters.requests.list + counters.requests.watch > asked
        };
        soon(self.fake.when(more)).await;
    }

    /// How often the client has asked for all that there is, by a list or by a watch that begins with it.
    fn lists(&self) -> usize {
        let history = self.fake.api().history().resource("configmaps");
        let all = history.entries().iter().filter(|entry| {
            entry.verb == Verb::List || entry.query.contains("sendInitialEvents=true")
        });
        all.count()
    }

    /// Something changes while the cluster is in trouble.
    fn change(&self) {
        self.put("first", "2");
        self.put("second", "1");
    }

    async fn run(&self, clients: &Clients) {
        let api = self.fake.api();
        clients.hold_all_of(self, "at the start").await;
        let (asked, lists) = (self.asked(), self.lists());
        match &self.trouble {
            Trouble::Requests(fault) => {
                let injected = api.inject(fault.clone());
                self.fake.end_watches();
                self.asks_again(asked).await;
                self.change();
                api.undo(injected);
            }
            Trouble::Watches(fault) => {
                let injected = api.inject(fault.clone());
                self.change();
                // The first was asked when the fault was met, so that the second is asked for it.
                self.asks_again(asked + 1).await;
                api.undo(injected);
            }
            Trouble::Silent(fault) => {
                let injected = api.inject(fault.clone());
                self.change();
                self.fake.send_bookmarks();
                api.undo(injected);
            }
            Trouble::Throughout(_) => self.change(),
            Trouble::Ended => {
                self.fake.end_watches();
                self.change();
                self.asks_again(asked).await;
            }
            Trouble::Cut => {
                self.fake.refuse();
                self.change();
                self.fake.heal();
            }
            Trouble::Compacted => {
                self.fake.refuse();
                self.change();
                self.fake.compact();
                self.fake.heal();
            }
            Trouble::Restored => {
                let backup = api.snapshot();
                self.put("third", "1");
                clients.hold_all_of(self, "before the restoration").await;
                api.restore(&backup);
                self.change();
                // As a restored etcd is: no event before the backup is known any more.
                let expired = api.inject(Fault::watch_expired());
                // The first may have come before that.
                self.asks_again(asked + 1).await;
                api.undo(expired);
            }
            Trouble::Token => {
                self.fake.rotate_token();
                self.write_credential(&clients.folder);
                self.fake.end_watches();
                self.change();
            }
            Trouble::Replaced => {
                api.replace();
                self.change();
            }
        }
        clients.hold_all_of(self, "afterwards").await;
        self.put("fourth", "1");
        self.fake.delete("v1", "ConfigMap", "default", "second");
        clients.hold_all_of(self, "later").await;
        match self.trouble {
            // Nothing is listed again.
            Trouble::Ended => assert_eq!(self.lists(), lists, "{}", api.history()),
            Trouble::Compacted | Trouble::Restored => {
                assert!(self.lists() > lists, "{}", api.history());
            }
            _ => {}
        }
    }
}

/// Tokens are what a program prints, which is asked again when they are refused.
fn kubeconfig_with_programs(clusters: &[Cluster], folder: &TempDir) -> Value {
    let (mut named, mut users, mut contexts) = (vec![], vec![], vec![]);
    for cluster in clusters {
        let (name, access) = (cluster.name, cluster.fake.access());
        named.push(json!({ "name": name, "cluster": {
            "server": access.url, "certificate-authority-data": STANDARD.encode(access.ca_pem),
        } }));
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "cat", "args": [cluster.credential(folder)],
        });
        users.push(json!({ "name": name, "user": { "exec": exec } }));
        contexts.push(json!({ "name": name, "context": { "cluster": name, "user": name } }));
    }
    json!({ "apiVersion": "v1", "kind": "Config", "clusters": named, "users": users, "contexts": contexts })
}

/// `environment` is the program's.
async fn survive(kind: &str, environment: &[(&str, &str)]) {
    let Some(program) = or_skip(program()) else {
        return;
    };
    let troubles = troubles().into_iter();
    let clusters: Vec<_> = troubles
        .map(|(name, trouble)| Cluster::start(name, trouble))
        .collect();
    let clients = Clients::start(&program, kind, environment, &clusters);
    join_all(clusters.iter().map(|cluster| cluster.run(&clients))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_of_client_go_survives_every_trouble() {
    survive("informer", &[]).await;
}

/// As clients before 1.35 ask, and those that the new way does not work for.
#[tokio::test(flavor = "multi_thread")]
async fn an_informer_that_lists_and_watches_survives_every_trouble() {
    survive("informer", &[("KUBE_FEATURE_WatchListClient", "false")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_of_controller_runtime_survives_every_trouble() {
    survive("cache", &[]).await;
}
