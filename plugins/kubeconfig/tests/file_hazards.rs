//! Files that are none, watches that see nothing, and what is left when a stream goes.

use std::{path::Path, process::Command, time::Duration};

use clustercache::{ClusterKey, ClusterSource};
use clustercache_kubeconfig::{FileProblemReason, KubeconfigFile, Policy};

mod support;
use support::{
    Parts,
    events::{Events, replace, watched},
};

const HOUR: Duration = Duration::from_secs(3_600);

#[cfg(unix)]
#[tokio::test]
async fn what_is_no_regular_file_is_refused_and_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    for path in [fifo.as_path(), dir.path(), Path::new("/dev/zero")] {
        let source = KubeconfigFile::at(path);
        Events::of(&source).next().await.unwrap_err();
        let problems = source.problems();
        assert_eq!(
            problems[0].reason(),
            &FileProblemReason::NotAFile,
            "{path:?}"
        );
    }
}

#[tokio::test]
async fn a_file_is_read_up_to_its_policys_limit() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    let content = parts.fleet(&[("a", 1, "t")]);
    std::fs::write(&path, &content).unwrap();
    let limit = content.len() - 1;
    let source = watched(&path).policy(Policy::operator().max_bytes(limit));
    Events::of(&source).next().await.unwrap_err();
    let problems = source.problems();
    assert_eq!(problems[0].reason(), &FileProblemReason::TooLarge { limit });
}

#[tokio::test]
async fn what_the_watch_does_not_see_the_poll_finds() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let (above, path) = (dir.path().join("a"), dir.path().join("a/b/config"));
    let put = |token: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, parts.fleet(&[("a", 1, token)])).unwrap();
    };
    put("old");
    let mut events = Events::of(&watched(&path).poll_every(Duration::from_millis(100)));
    events.are(&["+a 10.0.0.1 old", "synced"]).await;
    // The directory of the file goes with the one above, which is not watched.
    std::fs::rename(&above, dir.path().join("away")).unwrap();
    put("new");
    events.are(&["+a 10.0.0.1 new"]).await;
}

#[tokio::test]
async fn a_reread_waits_for_the_end_of_an_edit_too() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    std::fs::write(&path, parts.fleet(&[("a", 1, "old")])).unwrap();
    let source = watched(&path).quiet_for(HOUR);
    let mut events = Events::of(&source);
    events.are(&["+a 10.0.0.1 old", "synced"]).await;
    replace(&path, &parts.fleet(&[("a", 1, "half")]));
    source.reread(&ClusterKey::named("a"));
    let told = events.are(&["+a 10.0.0.1 half"]);
    let told = tokio::time::timeout(Duration::from_millis(300), told).await;
    assert!(told.is_err(), "half of an edit");
}

#[tokio::test]
async fn a_reread_reads_what_no_watch_noticed() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    std::fs::write(&path, parts.fleet(&[("a", 1, "old")])).unwrap();
    let source = watched(&path);
    let mut events = Events::of(&source);
    events.are(&["+a 10.0.0.1 old", "synced"]).await;
    std::fs::write(&path, parts.fleet(&[("a", 1, "new")])).unwrap();
    source.reread(&ClusterKey::named("a"));
    events.are(&["+a 10.0.0.1 new"]).await;
}

#[tokio::test]
async fn other_files_of_the_directory_do_not_put_an_edit_off() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    std::fs::write(&path, parts.fleet(&[("a", 1, "old")])).unwrap();
    let mut events = Events::of(&watched(&path));
    events.are(&["+a 10.0.0.1 old", "synced"]).await;
    replace(&path, &parts.fleet(&[("a", 1, "new")]));
    let noise = async {
        loop {
            std::fs::write(dir.path().join("noise"), "x").unwrap();
            // Its pace: nothing is waited for.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = events.are(&["+a 10.0.0.1 new"]) => {}
        () = noise => {}
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stream_that_is_dropped_leaves_no_thread_and_no_descriptor() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    std::fs::write(&path, parts.fleet(&[("a", 1, "t")])).unwrap();
    let inotify = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let ours = |target: std::path::PathBuf| target.to_string_lossy().contains("inotify");
        open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(ours))
            .count()
    };
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.contains("notify")).count()
    };
    let source = watched(&path);
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut events = Events::of(&source);
        events.are(&["+a 10.0.0.1 t", "synced"]).await;
        streams.push(events);
    }
    assert!(inotify() >= 20 && threads() >= 20);
    drop(streams);
    // Other tests of this process have watches too, but never as many.
    let gone = async {
        while inotify() >= 10 || threads() >= 10 {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    assert!(
        gone.is_ok(),
        "{} descriptors, {} threads",
        inotify(),
        threads()
    );
}

#[tokio::test]
async fn an_edit_that_never_ends_is_taken_all_the_same() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    std::fs::write(&path, parts.fleet(&[("a", 1, "old")])).unwrap();
    let mut events = Events::of(&watched(&path));
    events.are(&["+a 10.0.0.1 old", "synced"]).await;
    let new = parts.fleet(&[("a", 1, "new")]);
    let edits = async {
        loop {
            replace(&path, &new);
            // Its pace: nothing is waited for.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = events.are(&["+a 10.0.0.1 new"]) => (),
        () = edits => (),
    }
}
