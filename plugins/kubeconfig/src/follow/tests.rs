//! Files that are not read in time. Whoever hangs is played by the test, which holds what every reader waits for: no file system can be
//! had that hangs when it is told to.
#![cfg(unix)]

use std::{path::Path, time::Duration};

use clustercache::{ClusterKey, ClusterSource, SourceEvent, SourcedAccess};
use futures_util::StreamExt;

use super::*;
use crate::FileProblemReason;

const MINUTE: Duration = Duration::from_secs(60);

fn source(directory: &Path) -> KubeconfigFile {
    let go = directory.join("go").display().to_string();
    let answer = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
    let script =
        format!("until [ -e {go} ]; do sleep 0.05; done; echo '{answer}'").replace('\'', "''");
    let document = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{server: 'http://10.0.0.1'}}\nusers:\n- name: u\n  \
         user:\n    exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: ['-c', '{script}']}}\n\
         contexts:\n- name: a\n  context: {{cluster: c, user: u}}\n"
    );
    let path = directory.join("config");
    std::fs::write(&path, document).unwrap();
    let policy = Policy::operator().allow_exec(["sh"]).allow_http();
    let mut source = KubeconfigFile::at(path).policy(policy);
    source.read_deadline = Duration::from_millis(100);
    source.quiet_for(Duration::from_millis(20))
}

async fn next(
    events: &mut BoxStream<'static, Result<SourceEvent, SourceError>>,
) -> Result<SourceEvent, SourceError> {
    let event = timeout(MINUTE, events.next())
        .await
        .expect("an event in time");
    event.expect("the stream goes on")
}

fn access(event: SourceEvent) -> SourcedAccess {
    match event {
        SourceEvent::Upsert(upsert) => upsert.access,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_system_that_hangs_takes_no_program_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let mut events = source.events();
    assert!(matches!(
        access(next(&mut events).await.unwrap()),
        SourcedAccess::Gated(_)
    ));
    assert!(matches!(next(&mut events).await, Ok(SourceEvent::Synced)));
    let hangs = Arc::clone(&source.shared.reading).acquire_owned().await;
    source.reread(&ClusterKey::named("a"));
    let late = async {
        while source.problems().is_empty() {
            yield_now().await;
        }
    };
    tokio::select! {
        () = late => {}
        event = next(&mut events) => panic!("{event:?}"),
    }
    let problems = source.problems();
    assert!(matches!(
        problems[0].reason(),
        FileProblemReason::NoAnswer(_)
    ));
    assert!(problems[0].last_good_kept());
    // The program that has run all the time is heard, though the files are not read yet.
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert!(matches!(
        access(next(&mut events).await.unwrap()),
        SourcedAccess::Ready(_)
    ));
    drop(hangs);
    std::fs::remove_file(dir.path().join("config")).unwrap();
    let read = async {
        while matches!(&*source.problems(), [late] if matches!(late.reason(), FileProblemReason::NoAnswer(_)))
        {
            yield_now().await;
        }
    };
    tokio::select! {
        read = timeout(MINUTE, read) => read.expect("read in time"),
        event = next(&mut events) => panic!("{event:?}"),
    }
}

#[tokio::test]
async fn a_file_system_that_hangs_at_first_fails_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let hangs = Arc::clone(&source.shared.reading).acquire_owned().await;
    let error = next(&mut source.events()).await.unwrap_err().to_string();
    assert!(error.contains("was not read within 100ms"), "{error}");
    drop(hangs);
    assert!(matches!(
        access(next(&mut source.events()).await.unwrap()),
        SourcedAccess::Gated(_)
    ));
    assert_eq!(source.problems(), []);
}
