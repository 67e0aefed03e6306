//! The same calls of kubectl against the fake and the real API server: it prints the same, and ends alike, but for what each
//! server makes up by itself.

mod calls;
mod forward;

use std::{ffi::OsString, process::Stdio, time::Duration};

use clustercache_testkit::{
    api::{FakeApi, Kind},
    fleet::FakeCluster,
    real::SKIPPED,
    real_or_skip,
};
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, process::Command};

use self::calls::{CALLS, Call};

/// A limit that no call reaches on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What kubectl printed, and how it ended.
#[derive(PartialEq)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("it did not happen in time")
}

/// Whether there is a kubectl.
async fn there() -> bool {
    let version = ["version", "--client"];
    let said = Command::new("kubectl").args(version).output().await;
    said.is_ok()
}

/// A folder in which kubectl finds its server and keeps what it discovers.
struct Kubectl(tempfile::TempDir);

impl Kubectl {
    fn new(kubeconfig: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config"), kubeconfig).unwrap();
        Self(folder)
    }

    fn environment(&self) -> [(&'static str, OsString); 3] {
        let home = self.0.path();
        [
            ("PATH", std::env::var_os("PATH").unwrap_or_default()),
            ("HOME", home.into()),
            ("KUBECONFIG", home.join("config").into()),
        ]
    }

    async fn run(&self, call: &Call) -> Said {
        let mut child = Command::new("kubectl")
            .args(call.words())
            .env_clear()
            .envs(self.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(call.input().as_bytes()).await.unwrap();
        drop(input);
        let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let Ok(output) = ended else {
            let err = format!("it did not end within {PATIENCE:?}");
            return Said {
                code: None,
                out: String::new(),
                err,
            };
        };
        let output = output.unwrap();
        let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes));
        Said {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

/// Without ages, UIDs, versions, times, addresses and tokens.
fn normal(text: &str) -> String {
    // The fake has neither quotas nor limit ranges, not even the lack of them.
    let text = text
        .replace("No resource quota.\n", "")
        .replace("No LimitRange resource.\n", "");
    let line = |line: &str| {
        let words = line.split_whitespace().map(word);
        words.collect::<Vec<_>>().join(" ")
    };
    text.trim_end()
        .lines()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(|letter: char| "\",;()".contains(letter));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let age = bare.strip_suffix('s').is_some_and(digits);
    let uid = bare.len() == 36 && bare.bytes().filter(|byte| *byte == b'-').count() == 4;
    let time = bare.len() == 20 && bare.ends_with('Z') && bare.contains('T');
    let address = bare.starts_with("10.0.") || bare.starts_with("https://127.0.0.1:");
    let version = bare.len() > 1 && digits(bare);
    let token = bare.len() > 100 && bare.starts_with("eyJ");
    if age || uid || time || address || version || token {
        word.replace(bare, "<it>")
    } else {
        word.to_owned()
    }
}

fn fake() -> FakeCluster {
    let api = FakeApi::builder()
        .pods_end(false)
        .budgets_kept(false)
        .build();
    api.add_kind(Kind::custom("example.com", "v1", "Widget").short_name("wd"))
        .unwrap();
    FakeCluster::builder("fake").api(api).start().unwrap()
}

fn definition() -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "shortNames": ["wd"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_says_of_the_fake_what_it_says_of_the_real_server() {
    if !there().await {
        eprintln!("{SKIPPED} kubectl_says_of_the_fake_what_it_says_of_the_real_server: no kubectl");
        return;
    }
    let servers = real_or_skip!(1);
    let fake = fake();
    let (ours, theirs) = (
        Kubectl::new(&fake.kubeconfig()),
        Kubectl::new(&servers[0].kubeconfig()),
    );
    let defined = theirs.run(&Call::new("create -f -", &definition())).await;
    assert_eq!(defined.code, Some(0), "{}", defined.err);
    let established = "wait --for=condition=established crd/widgets.example.com";
    assert_eq!(theirs.run(&Call::new(established, "")).await.code, Some(0));
    let mut different = Vec::new();
    for (line, input) in CALLS {
        let call = Call::new(line, input);
        let (ours, theirs) = tokio::join!(ours.run(&call), theirs.run(&call));
        if ours != theirs {
            different.push(format!(
                "kubectl {line}\n--- fake: {:?}\n{}\n{}\n--- real: {:?}\n{}\n{}",
                ours.code, ours.out, ours.err, theirs.code, theirs.out, theirs.err
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} calls differ:\n{}",
        different.len(),
        CALLS.len(),
        different.join("\n\n")
    );
    println!("{} calls are answered alike", CALLS.len());
}
