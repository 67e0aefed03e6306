//! The fleet in a process of its own.

use std::{collections::BTreeSet, path::Path, process::Stdio};

use bytes::Bytes;
use clustercache_testkit::fleet::{FakeAccess, FakeCredential};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::client::{Client, Http, soon};

struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    kubeconfig: String,
    control: String,
}

impl Process {
    async fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-fleet"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
            kubeconfig: String::new(),
            control: String::new(),
        };
        process.kubeconfig = process.line().await;
        process.control = process.line().await;
        assert_eq!(process.line().await, "ready");
        process
    }

    async fn line(&mut self) -> String {
        soon(self.output.next_line())
            .await
            .unwrap()
            .expect("it ended")
    }

    async fn tell(&mut self, command: &str) -> Value {
        self.input
            .write_all(format!("{command}\n").as_bytes())
            .await
            .unwrap();
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// One request to the control endpoint.
    async fn control(&self, method: Method, path: &str, body: impl ToString) -> (u16, Value) {
        let addr = self.control.strip_prefix("http://").unwrap();
        let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", addr);
        let body = Full::new(Bytes::from(body.to_string()));
        let answer = sender.send_request(request.body(body).unwrap());
        let answer = soon(answer).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        drop(sender);
        soon(connection).await.unwrap().unwrap();
        (code, serde_json::from_slice(&body).unwrap())
    }

    async fn end(mut self) {
        drop(self.input);
        assert!(soon(self.child.wait()).await.unwrap().success());
    }
}

fn kubeconfig(path: impl AsRef<Path>) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn server_in(document: &Value, place: usize) -> String {
    let server = document["clusters"][place]["cluster"]["server"].as_str();
    server.unwrap().to_owned()
}

/// The first context of a kubeconfig.
fn access(path: impl AsRef<Path>) -> FakeAccess {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let document = kubeconfig(path);
    let ca = &document["clusters"][0]["cluster"]["certificate-authority-data"];
    let ca = STANDARD.decode(ca.as_str().unwrap()).unwrap();
    let token = &document["users"][0]["user"]["token"];
    FakeAccess {
        name: document["contexts"][0]["name"].as_str().unwrap().to_owned(),
        url: server_in(&document, 0),
        ca_pem: String::from_utf8(ca).unwrap(),
        credential: FakeCredential::Token(token.as_str().unwrap().to_owned()),
    }
}

#[tokio::test]
async fn a_fleet_in_another_process_obeys_line_by_line_and_ends_with_its_input() {
    let mut fleet = Process::start(&["--clusters", "3", "--port-each"]).await;
    let path = fleet.kubeconfig.clone();
    let before = kubeconfig(&path);
    let addr = server_in(&before, 1);
    let addr = addr.strip_prefix("https://").unwrap();
    assert_eq!(before["contexts"][2]["name"], "fake-2");

    assert_eq!(fleet.tell("refuse 1..3").await["clusters"], 2);
    assert!(TcpStream::connect(&addr).await.is_err());
    assert_eq!(fleet.tell("heal all").await["ok"], true);
    assert!(TcpStream::connect(&addr).await.is_ok());

    let rotated = fleet.tell("rotate-token fake-1").await;
    let after = kubeconfig(&path);
    assert_eq!(
        after["users"][1]["user"]["token"],
        rotated["answers"]["fake-1"]
    );
    assert_eq!(after["users"][0], before["users"][0]);

    let stats = fleet.tell("stats").await;
    assert_eq!(stats["clusters"], 3);
    assert!(stats["counters"]["requests"]["health"].is_u64());
    for command in [
        "hang all /readyz",
        "answer 0..1 / 503",
        "latency all 1",
        "normal all",
    ] {
        assert_eq!(fleet.tell(command).await["ok"], true, "{command}");
    }
    assert!(fleet.tell("answer all / 99").await["error"].is_string());
    assert!(fleet.tell("heal fake-9").await["error"].is_string());
    assert!(fleet.tell("dance all").await["error"].is_string());

    fleet.end().await;
    assert!(!Path::new(&path).exists());
}

#[tokio::test]
async fn a_folder_has_a_kubeconfig_a_cluster_and_one_of_all_and_pods_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut fleet = Process::start(&[
        "--clusters",
        "3",
        "--first",
        "40",
        "--pods",
        "5",
        "--changes-per-second",
        "200",
        "--kubeconfig-dir",
        folder.path().to_str().unwrap(),
    ])
    .await;
    assert_eq!(Path::new(&fleet.kubeconfig), path("all.yaml"));
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: BTreeSet<_> = names.map(|file| file.unwrap().file_name()).collect();
    let wanted = ["all.yaml", "fake-40.yaml", "fake-41.yaml", "fake-42.yaml"];
    assert_eq!(names, wanted.map(Into::into).into());
    assert_eq!(
        server_in(&kubeconfig(path("all.yaml")), 1),
        server_in(&kubeconfig(path("fake-41.yaml")), 0)
    );

    let mut client = Client::connect(&access(path("fake-41.yaml")), Http::Two)
        .await
        .unwrap();
    let (_, list) = client.get("/api/v1/pods").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 5);
    let mut events = client.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    while events.change().await.0 != "MODIFIED" {}

    fleet.tell("rotate-token fake-41").await;
    assert_eq!(client.text("/api/v1/pods").await.unwrap().0, 401);
    let mut renewed = Client::connect(&access(path("fake-41.yaml")), Http::Two)
        .await
        .unwrap();
    assert_eq!(renewed.get("/api/v1/pods").await.0, 200);
    fleet.end().await;
    assert!(path("all.yaml").exists(), "a folder that was named is kept");
}

#[tokio::test]
async fn faults_counters_and_requests_are_there_over_http() {
    let fleet = Process::start(&["--clusters", "2"]).await;
    let mut client = Client::connect(&access(&fleet.kubeconfig), Http::Two)
        .await
        .unwrap();
    let order = json!({
        "clusters": "fake-0", "fault": "status", "code": 429, "retryAfter": 3,
        "verb": "list", "resource": "pods",
    });
    let (code, made) = fleet.control(Method::POST, "/faults", &order).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(client.get("/api/v1/pods").await.0, 429);
    assert_eq!(client.get("/api/v1/nodes").await.0, 200);
    let (_, faults) = fleet.control(Method::GET, "/faults", "").await;
    assert_eq!(faults, json!([{ "id": made["id"], "order": order }]));
    let one = format!("/faults/{}", made["id"]);
    assert_eq!(fleet.control(Method::DELETE, &one, "").await.0, 200);
    assert_eq!(fleet.control(Method::DELETE, &one, "").await.0, 404);
    assert_eq!(client.get("/api/v1/pods").await.0, 200);

    let expired = json!({ "fault": "certificate", "certificate": "expired" });
    assert_eq!(fleet.control(Method::POST, "/faults", expired).await.0, 201);
    let to = access(&fleet.kubeconfig);
    assert!(Client::connect(&to, Http::Two).await.is_err());
    fleet.control(Method::DELETE, "/faults", "").await;
    // Answered, it is known to be counted: a client's handshake is over before the server's.
    let mut again = Client::connect(&to, Http::Two).await.unwrap();
    assert_eq!(again.get("/api/v1/nodes").await.0, 200);

    let (_, counters) = fleet.control(Method::GET, "/counters", "").await;
    assert_eq!(counters["clusters"]["fake-0"]["requests"]["list"], 4);
    assert_eq!(counters["total"]["tls_handshakes"], 2);
    let query = "/requests?clusters=fake-0&verb=list&resource=pods&code=429";
    let (_, requests) = fleet.control(Method::GET, query, "").await;
    assert_eq!(requests["count"], 1);
    assert_eq!(requests["last"][0]["path"], "/api/v1/pods");
    let (_, clusters) = fleet.control(Method::GET, "/clusters", "").await;
    assert_eq!(clusters[1]["name"], "fake-1");
    let (_, stats) = fleet.control(Method::POST, "/commands", "stats 0..1").await;
    assert_eq!(stats["clusters"], 1);
    fleet.end().await;
}

#[tokio::test]
async fn every_fault_can_be_ordered_and_what_is_wrong_with_an_order_is_said() {
    let fleet = Process::start(&["--clusters", "1"]).await;
    let mut orders: Vec<Value> = [
        "black-hole",
        "unplug",
        "pause",
        "refuse",
        "unauthorized",
        "forbidden",
        "gone",
        "hang",
        "without-aggregated-discovery",
        "watch-expired",
        "watch-ended",
        "watch-stalled",
        "watch-without-bookmarks",
    ]
    .map(|fault| json!({ "fault": fault }))
    .into();
    orders.extend([
        json!({ "fault": "black-hole", "connections": "old" }),
        json!({ "fault": "latency", "quantiles": [[0.5, 20], [1.0, 300]], "seed": 7 }),
        json!({ "fault": "latency", "milliseconds": 3, "connections": "new" }),
        json!({ "fault": "bandwidth", "bytesPerSecond": 1000 }),
        json!({ "fault": "status", "code": 500, "share": 0.5, "namespace": "a", "user": "b" }),
        json!({ "fault": "watch-cut", "events": 3 }),
        json!({ "fault": "watch-cut", "milliseconds": 3 }),
    ]);
    for part in ["tls", "head", "body", "watch"] {
        for then in ["silence", "close", "reset"] {
            orders.push(json!({
                "fault": "stop", "part": part, "after": 9, "then": then, "pathPrefix": "/api",
            }));
        }
    }
    for certificate in ["expired", "wrong-name", "foreign"] {
        orders.push(json!({ "fault": "certificate", "certificate": certificate }));
    }
    for behaviour in ["no-tls", "silent", "endless", "goaway"] {
        orders.push(json!({ "fault": "hostile", "behaviour": behaviour }));
    }
    for order in &orders {
        let (code, said) = fleet.control(Method::POST, "/faults", order).await;
        assert_eq!(code, 201, "{order}: {said}");
    }
    fleet.control(Method::DELETE, "/faults", "").await;
    for wrong in [
        json!({ "fault": "stop", "part": "tls" }),
        json!({ "fault": "black-hole", "conections": "old" }),
        json!({ "fault": "latency" }),
        json!({ "fault": "status" }),
        json!({ "fault": "hang", "verb": "dance" }),
        json!({ "fault": "hang", "clusters": "fake-9" }),
        json!({ "fault": "earthquake" }),
    ] {
        let (code, said) = fleet.control(Method::POST, "/faults", &wrong).await;
        assert_eq!(code, 400, "{wrong}");
        assert!(said["error"].is_string());
    }
    let to = access(&fleet.kubeconfig);
    let mut client = Client::connect(&to, Http::Two).await.unwrap();
    assert_eq!(client.get("/api/v1/pods").await.0, 200);
    fleet.end().await;
}

/// Where there is a kubectl.
#[tokio::test]
async fn kubectl_gets_its_pods_from_any_cluster_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let arguments = ["--clusters", "2", "--pods", "3", "--kubeconfig-dir", dir];
    let fleet = Process::start(&arguments).await;
    let all = folder.path().join("all.yaml");
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["--kubeconfig", all.to_str().unwrap(), "--context", "fake-1"]);
    kubectl.args(["get", "pods", "-o", "name"]);
    kubectl.env("HOME", folder.path());
    match soon(kubectl.output()).await {
        Ok(said) => {
            let text = String::from_utf8(said.stdout).unwrap();
            let failed = String::from_utf8(said.stderr).unwrap();
            assert_eq!(text, "pod/pod-0\npod/pod-1\npod/pod-2\n", "{failed}");
        }
        Err(error) => println!("left out, there is no kubectl: {error}"),
    }
    fleet.end().await;
}
