//! Files that an operator's kubeconfig names: CA, client certificate, key and token. Nothing here polls: what is told was noticed.
#![cfg(unix)]

use std::{os::unix::fs::symlink, path::Path, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};
use clustercache::AccessChange;
use clustercache_kubeconfig::{FileProblemReason, KubeconfigFile, Policy};

mod support;
use support::{
    CONTEXT, Parts,
    events::{Events, replace, watched},
    written,
};

/// What breaks a file.
type Break = fn(&Path);

fn pem(data: &str) -> Vec<u8> {
    STANDARD.decode(data).unwrap()
}

fn put(dir: &Path, name: &str, content: impl AsRef<[u8]>) {
    std::fs::write(dir.join(name), content).unwrap();
}

/// A kubeconfig whose CA and user are in files beside it.
fn beside(dir: &Path, user: &str) -> KubeconfigFile {
    let cluster = "server: 'https://10.0.0.1', certificate-authority: ca.crt";
    let path = dir.join("config");
    std::fs::write(&path, written(cluster, user, CONTEXT)).unwrap();
    watched(&path)
}

#[tokio::test]
async fn each_part_may_be_in_a_file_named_from_the_kubeconfigs_directory_or_by_its_whole_path() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let root = dir.path();
    std::fs::create_dir(root.join("pki")).unwrap();
    put(root, "ca.crt", pem(&parts.ca));
    put(root, "pki/client.crt", pem(&parts.certificate));
    put(root, "pki/client.key", pem(&parts.key));
    put(root, "token", "t0ken\n");
    let user = format!(
        "client-certificate: pki/client.crt, client-key: '{}', tokenFile: ./token",
        root.join("pki/client.key").display()
    );
    let source = beside(root, &user);
    let access = Events::of(&source).access().await;
    let expected = support::current(&written(
        &parts.cluster().replace("10.0.0.1:6443", "10.0.0.1"),
        &format!("{}, token: t0ken", parts.user()),
        CONTEXT,
    ));
    let expected = expected.unwrap();
    assert_eq!(access.ca().fingerprint(), expected.ca().fingerprint());
    assert_eq!(
        access.credential().fingerprint(),
        expected.credential().fingerprint()
    );
    assert_eq!(source.problems(), []);
}

#[tokio::test]
async fn a_token_that_is_replaced_is_read_again_and_nothing_else_changes() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let root = dir.path();
    put(root, "ca.crt", pem(&parts.ca));
    // As a projected volume has it: a link to a directory that is swapped.
    let version = |name: &str, token: &str| {
        std::fs::create_dir(root.join(name)).unwrap();
        put(root, &format!("{name}/token"), token);
        symlink(name, root.join("..tmp")).unwrap();
        std::fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
    };
    version("..1", "t1");
    symlink("..data/token", root.join("token")).unwrap();
    let mut events = Events::of(&beside(root, "tokenFile: token"));
    let old = events.access().await;
    events.are(&["synced"]).await;
    version("..2", "t2");
    let new = events.access().await;
    assert_eq!(old.change_to(&new), AccessChange::Credential);
    version("..3", "t3");
    events.are(&["+dev 10.0.0.1 t3"]).await;
    // Or written in place, or by a rename.
    put(root, "..3/token", "t4");
    events.are(&["+dev 10.0.0.1 t4"]).await;
    replace(&root.join("..3/token"), "t5");
    events.are(&["+dev 10.0.0.1 t5"]).await;
}

#[tokio::test]
async fn another_ca_in_the_file_is_another_endpoint() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    put(dir.path(), "ca.crt", pem(&parts.ca));
    let mut events = Events::of(&beside(dir.path(), "token: t"));
    let old = events.access().await;
    events.are(&["synced"]).await;
    put(dir.path(), "ca.crt", pem(&Parts::new().ca));
    let new = events.access().await;
    assert_eq!(old.change_to(&new), AccessChange::Endpoint);
}

#[tokio::test]
async fn a_broken_edit_of_a_named_file_takes_nothing_away() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let root = dir.path();
    put(root, "ca.crt", pem(&parts.ca));
    put(root, "token", "t1");
    let source = beside(root, "tokenFile: token");
    let mut events = Events::of(&source);
    events.are(&["+dev 10.0.0.1 t1", "synced"]).await;
    let token = root.join("token");
    let breaks: [(Break, FileProblemReason, &str); 3] = [
        (
            |token| std::fs::write(token, " \n").unwrap(),
            FileProblemReason::Empty,
            "t2",
        ),
        (
            |token| std::fs::remove_file(token).unwrap(),
            FileProblemReason::Missing,
            "t3",
        ),
        (
            |token| {
                std::fs::remove_file(token).unwrap();
                mkfifo(token);
            },
            FileProblemReason::NotAFile,
            "t4",
        ),
    ];
    for (broken, reason, mended) in breaks {
        broken(&token);
        problem(&source, &mut events).await;
        let problems = source.problems();
        assert_eq!(
            (problems[0].file(), problems[0].reason()),
            (token.as_path(), &reason)
        );
        assert!(problems[0].last_good_kept());
        // The next event is what mended it.
        replace(&token, mended);
        let event = events.next().await;
        assert_eq!(event, Ok(format!("+dev 10.0.0.1 {mended}")));
        assert_eq!(source.problems(), []);
    }
}

/// Drives the stream until the source has a problem; it must tell nothing meanwhile.
async fn problem(source: &KubeconfigFile, events: &mut Events) {
    let seen = async {
        while source.problems().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        event = events.next() => panic!("{event:?}"),
        () = seen => {}
    }
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn a_context_whose_file_cannot_be_read_is_refused_alone_until_it_can() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let root = dir.path();
    let path = root.join("config");
    let fleet = parts.fleet(&[("a", 1, "A"), ("b", 2, "B"), ("c", 3, "C"), ("d", 4, "t")]);
    let fleet = fleet
        .replace("token: A", "tokenFile: missing/token")
        .replace("token: B", "client-certificate: fifo, client-key: fifo")
        .replace("token: C", "tokenFile: large");
    mkfifo(&root.join("fifo"));
    put(root, "large", vec![b'x'; 1024 * 1024 + 1]);
    std::fs::write(&path, fleet).unwrap();
    let source = watched(&path);
    let mut events = Events::of(&source);
    for (name, at, why) in [
        ("a", "users[0].user.tokenFile", "is not there"),
        ("b", "users[1].user.client-key", "is no regular file"),
        (
            "c",
            "users[2].user.tokenFile",
            "is larger than 1048576 bytes",
        ),
    ] {
        let event = events.next().await.unwrap();
        let start = format!(
            "!{name} {at} in {}: the file that it names {why}",
            path.display()
        );
        assert!(event.starts_with(&start), "{event}");
    }
    events.are(&["+d 10.0.0.4 t", "synced"]).await;
    assert_eq!(source.problems().len(), 3);
    std::fs::create_dir(root.join("missing")).unwrap();
    put(root, "missing/token", "t");
    events.are(&["+a 10.0.0.1 t"]).await;
    put(root, "large", "t");
    events.are(&["+c 10.0.0.3 t"]).await;
}

#[tokio::test]
async fn what_is_in_a_named_file_is_judged_as_if_it_stood_inline() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let root = dir.path();
    put(root, "ca.crt", pem(&parts.ca));
    put(root, "client.crt", pem(&parts.certificate));
    put(root, "client.key", pem(&parts.key));
    put(root, "bad", "c4narySECRET and more");
    for (cluster, user, at, why) in [
        (
            "certificate-authority: bad",
            "token: t",
            "clusters[0].cluster.certificate-authority",
            "no certificate in PEM",
        ),
        (
            "certificate-authority: ca.crt",
            "tokenFile: bad",
            "users[0].user.tokenFile",
            "the token is empty or has",
        ),
        (
            "certificate-authority: ca.crt",
            "client-certificate: bad, client-key: client.key",
            "users[0].user.client-certificate",
            "no certificate in PEM",
        ),
        (
            "certificate-authority: ca.crt",
            "client-certificate: client.crt, client-key: bad",
            "users[0].user.client-key",
            "private key",
        ),
        (
            "certificate-authority: ca.crt",
            "client-certificate: client.crt",
            "users[0].user.client-key-data",
            "missing",
        ),
        (
            "certificate-authority: ca.crt",
            "tokenFile: bad, token: t",
            "users[0].user.tokenFile",
            "`token` is given too",
        ),
        (
            "certificate-authority: ca.crt, certificate-authority-data: YQ==",
            "token: t",
            "clusters[0].cluster.certificate-authority",
            "`certificate-authority-data` is given too",
        ),
    ] {
        let path = root.join("config");
        let cluster = format!("server: 'https://10.0.0.1', {cluster}");
        std::fs::write(&path, written(&cluster, user, CONTEXT)).unwrap();
        let event = Events::of(&watched(&path)).next().await.unwrap();
        assert!(event.starts_with(&format!("!dev {at} in ")), "{event}");
        assert!(event.contains(why) && !event.contains("c4nary"), "{event}");
    }
}

#[tokio::test]
async fn a_files_tenant_names_no_files() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    put(dir.path(), "ca.crt", pem(&parts.ca));
    mkfifo(&dir.path().join("token"));
    let source = beside(dir.path(), "tokenFile: token").policy(Policy::tenant());
    let event = Events::of(&source).next().await.unwrap();
    let start = "!dev clusters[0].cluster.certificate-authority in ";
    assert!(
        event.starts_with(start) && event.contains("`Policy::operator()`"),
        "{event}"
    );
    assert_eq!(source.problems(), []);
}

#[tokio::test]
async fn what_was_read_under_another_policy_is_nobody_elses() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    put(dir.path(), "ca.crt", pem(&parts.ca));
    put(dir.path(), "token", "s3cret");
    let source = beside(dir.path(), "tokenFile: token");
    let allowed = Events::of(&source).next().await.unwrap();
    assert!(allowed.starts_with("+dev "), "{allowed}");
    let tenants = source.clone().policy(Policy::tenant());
    let refused = Events::of(&tenants).next().await.unwrap();
    assert!(refused.starts_with("!dev "), "{refused}");
}
