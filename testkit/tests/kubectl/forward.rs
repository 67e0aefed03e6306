//! `kubectl port-forward`: SPDY, within a websocket as by default, and without.

use std::process::Stdio;

use clustercache_testkit::{api::Verb, fleet::FakeCluster, real::SKIPPED};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines, copy},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

use super::{Kubectl, soon, there};

/// Sends back what it is sent, until it is sent no more.
async fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                copy(&mut read, &mut write).await
            });
        }
    });
    address
}

/// A kubectl that forwards a port, and the address at which it does.
async fn forwarding(kubectl: &Kubectl, websockets: bool, port: u16) -> (Child, String) {
    let call = ["port-forward", "pod/web", &format!(":{port}")];
    let mut child: Child = Command::new("kubectl")
        .args(call)
        .env_clear()
        .envs(kubectl.environment())
        .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines: Lines<_> = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = soon(lines.next_line()).await.unwrap();
    let Some(line) = line else {
        let mut said = String::new();
        let errors = child.stderr.as_mut().unwrap();
        soon(errors.read_to_string(&mut said)).await.unwrap();
        panic!("kubectl {call:?}: {said}");
    };
    // What it says later has somewhere to go.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let address = line
        .strip_prefix("Forwarding from ")
        .and_then(|rest| rest.split_once(" ->"))
        .unwrap_or_else(|| panic!("{line}"));
    (child, address.0.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_forwards_ports_of_a_pod() {
    if !there().await {
        eprintln!("{SKIPPED} kubectl_forwards_ports_of_a_pod: no kubectl");
        return;
    }
    let cluster = FakeCluster::start("fake").unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "nodeName": "here", "containers": [] }, "status": { "phase": "Running" },
    });
    cluster.put(pod).unwrap();
    cluster
        .api()
        .forward_port("default", "web", 80, echo().await);
    let kubectl = Kubectl::new(&cluster.kubeconfig());

    for websockets in [true, false] {
        let (_child, address) = forwarding(&kubectl, websockets, 80).await;
        // One after the other, and side by side, over the same connection to the cluster.
        both(&address, b"hello").await;
        let large = vec![7; 1 << 20];
        tokio::join!(
            both(&address, &large),
            both(&address, b"world"),
            both(&address, &large),
        );
        let (mut child, address) = forwarding(&kubectl, websockets, 81).await;
        let mut stream = TcpStream::connect(&address).await.unwrap();
        assert_eq!(soon(stream.read(&mut [0; 8])).await.unwrap_or(0), 0);
        let mut said = String::new();
        let errors = child.stderr.as_mut().unwrap();
        soon(errors.read_to_string(&mut said)).await.unwrap();
        let wanted = "error forwarding port 81 to pod web, uid : failed to connect to localhost:81 inside the pod";
        assert!(said.contains(wanted), "{said}");
    }
    let asked = cluster.api().history().resource("pods/portforward");
    assert_eq!(asked.clone().verb(Verb::Get).count(), 2, "by websocket");
    assert_eq!(asked.verb(Verb::Create).count(), 2, "without");
}

/// Sends bytes to an address that sends them back, and ends when it has heard that ours have.
async fn both(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.split();
    let mut back = Vec::new();
    let sending = async {
        write.write_all(bytes).await?;
        write.shutdown().await
    };
    let (sent, received) = soon(async { tokio::join!(sending, read.read_to_end(&mut back)) }).await;
    sent.unwrap();
    received.unwrap();
    assert!(back == bytes, "{} of {}", back.len(), bytes.len());
}
