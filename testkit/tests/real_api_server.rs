//! Real kube-apiservers: what the other tests rely on.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use clustercache_testkit::real::{Caller, RealApiServer, RealError};
use clustercache_testkit::real_or_skip;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::Instant;

const NAMESPACES: &str = "/api/v1/namespaces";

async fn namespaces(server: &RealApiServer, caller: Caller<'_>) -> Result<Vec<String>, RealError> {
    let list: Value = server.get(caller, NAMESPACES).await?.success()?.json()?;
    let names = list["items"].as_array().into_iter().flatten();
    Ok(names
        .filter_map(|item| item["metadata"]["name"].as_str())
        .map(str::to_owned)
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_on_one_etcd_stop_and_return_die_and_restart() -> Result<(), RealError> {
    let mut servers = real_or_skip!(3, Ok(()));

    // Each is a cluster of its own: what is made in one is in no other, and no other's authority vouches for it.
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "only-here" } });
    servers[0]
        .post(Caller::Admin, NAMESPACES, &namespace)
        .await?
        .success()?;
    for (index, server) in servers.iter().enumerate() {
        let names = namespaces(server, Caller::Admin).await?;
        assert!(names.iter().any(|name| name == "default"), "{names:?}");
        assert_eq!(names.iter().any(|name| name == "only-here"), index == 0);
    }
    assert_ne!(servers[0].ca_pem(), servers[1].ca_pem());

    // The version was set at the build: clients would see v0.0.0.
    let version: Value = servers[0]
        .get(Caller::Anonymous, "/version")
        .await?
        .json()?;
    assert_eq!(version["major"], "1", "{version}");

    // A token is known, but may do nothing before it is granted something; nobody may do nothing at all.
    let token = servers[0].token_for("default/robot").await?;
    let refused = servers[0].get(Caller::Token(&token), NAMESPACES).await?;
    assert_eq!(refused.status, 403, "{}", refused.text());
    servers[0].grant_admin("default/robot").await?;
    let names = namespaces(&servers[0], Caller::Token(&token)).await?;
    assert!(names.iter().any(|name| name == "only-here"), "{names:?}");
    let elsewhere = servers[1].get(Caller::Token(&token), NAMESPACES).await?;
    assert_eq!(elsewhere.status, 401, "{}", elsewhere.text());
    let other = servers[0].token_for("default/robot").await?;
    assert_ne!(token, other);

    // A new client certificate is accepted beside the admin's, and only where it was issued.
    let alice = servers[0].issue_client("alice", Some("system:masters"))?;
    namespaces(&servers[0], Caller::Certificate(&alice)).await?;
    let elsewhere = servers[1]
        .get(Caller::Certificate(&alice), NAMESPACES)
        .await;
    assert!(!elsewhere.is_ok_and(|answer| answer.status.is_success()));

    // Stopped: accepts, answers nothing. Continued: answers.
    servers[1].stop()?;
    let silent = servers[1].get(Caller::Admin, "/readyz").await;
    assert!(
        matches!(silent, Err(RealError::NoAnswer { .. })),
        "{silent:?}"
    );
    servers[1].cont()?;
    namespaces(&servers[1], Caller::Admin).await?;

    // Killed: refused. Restarted: on the same port, with its data.
    let url = servers[0].url();
    servers[0].kill().await?;
    assert_eq!(servers[0].pid(), None);
    let dead = servers[0].get(Caller::Admin, "/readyz").await;
    assert!(matches!(dead, Err(RealError::NoAnswer { .. })), "{dead:?}");
    assert!(matches!(
        servers[0].stop(),
        Err(RealError::NotRunning { .. })
    ));
    servers[0].restart().await?;
    assert_eq!(servers[0].url(), url);
    let names = namespaces(&servers[0], Caller::Token(&token)).await?;
    assert!(names.iter().any(|name| name == "only-here"), "{names:?}");

    // The others never noticed, nor did etcd.
    namespaces(&servers[2], Caller::Admin).await?;
    servers.etcd().health().await?.success()?;
    let kubeconfig = servers[2].kubeconfig();
    assert!(kubeconfig.contains(&servers[2].url()));

    // Nothing stays behind.
    let pids: Vec<u32> = servers
        .iter()
        .filter_map(RealApiServer::pid)
        .chain(servers.etcd().pid())
        .collect();
    assert_eq!(pids.len(), 4);
    drop(servers);
    if Path::new("/proc/self").exists() {
        for pid in pids {
            assert!(
                !Path::new(&format!("/proc/{pid}")).exists(),
                "{pid} still runs"
            );
        }
    }
    Ok(())
}

/// Not a test: what `a_killed_test_leaves_nothing_behind` runs in a process of its own, and kills.
#[tokio::test]
#[ignore = "run by a_killed_test_leaves_nothing_behind"]
async fn starts_an_etcd_and_waits_for_ever() -> Result<(), RealError> {
    let servers = real_or_skip!(0, Ok(()));
    println!("etcd {}", servers.etcd().pid().unwrap_or_default());
    std::future::pending().await
}

#[tokio::test]
async fn a_killed_test_leaves_nothing_behind() -> Result<(), Box<dyn std::error::Error>> {
    // Nothing to kill where nothing can be started.
    drop(real_or_skip!(0, Ok(())));
    let folder = tempfile::tempdir()?;
    let mut test = Command::new(std::env::current_exe()?)
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "starts_an_etcd_and_waits_for_ever",
        ])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(test.stdout.take().ok_or("no stdout")?).lines();
    let etcd = loop {
        let line = lines.next_line().await?.ok_or("it ended")?;
        if let Some((_, pid)) = line.split_once("etcd ") {
            break pid.trim().parse::<u32>()?;
        }
    };
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 1);

    test.kill().await?;

    let process = format!("/proc/{etcd}");
    let gone = || {
        !Path::new(&process).exists()
            && std::fs::read_dir(folder.path()).is_ok_and(|mut left| left.next().is_none())
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !gone() {
        assert!(
            Instant::now() < deadline,
            "etcd {etcd} or its folder is still there"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
