//! The fleet in a process of its own.

use std::process::Stdio;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::client::soon;

struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-fleet"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        }
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
}

fn kubeconfig(path: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn a_fleet_in_another_process_obeys_line_by_line_and_ends_with_its_input() {
    let mut fleet = Process::start(&["--clusters", "3"]);
    let path = fleet.line().await;
    assert_eq!(fleet.line().await, "ready");
    let before = kubeconfig(&path);
    let server = before["clusters"][1]["cluster"]["server"].as_str().unwrap();
    let addr = server.strip_prefix("https://").unwrap().to_owned();
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

    drop(fleet.input);
    assert!(soon(fleet.child.wait()).await.unwrap().success());
    assert!(!std::path::Path::new(&path).exists());
}
