//! What the file source tells of edits. Nothing here polls: what is told was noticed.

use clustercache::{ClusterKey, ClusterSource};
use clustercache_kubeconfig::{FileProblemReason, KubeconfigFile};

mod support;
use support::{
    Parts,
    events::{Events, replace, watched},
};

#[tokio::test]
async fn each_context_is_a_cluster_then_synced() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    let arn = "'arn:aws:eks:eu-1:1:cluster/a'";
    std::fs::write(&path, parts.fleet(&[("b", 2, "t2"), (arn, 1, "t1")])).unwrap();
    let source = watched(&path);
    let told = [
        "+arn:aws:eks:eu-1:1:cluster/a 10.0.0.1 t1",
        "+b 10.0.0.2 t2",
        "synced",
    ];
    Events::of(&source).are(&told).await;
    // A new stream names everything again.
    Events::of(&source).are(&told).await;
    assert_eq!(source.problems(), []);
}

#[tokio::test]
async fn only_what_an_edit_changed_is_told() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    let first = [("a", 1, "t1"), ("b", 2, "t2"), ("c", 3, "t3")];
    std::fs::write(&path, parts.fleet(&first)).unwrap();
    let mut events = Events::of(&watched(&path));
    events
        .are(&[
            "+a 10.0.0.1 t1",
            "+b 10.0.0.2 t2",
            "+c 10.0.0.3 t3",
            "synced",
        ])
        .await;
    let second = [("b", 2, "t2"), ("c", 3, "new"), ("d", 4, "t4")];
    replace(&path, &parts.fleet(&second));
    events
        .are(&["-a", "+c 10.0.0.3 new", "+d 10.0.0.4 t4"])
        .await;
    // In place, comments only: nothing to tell. What comes next is the next edit's.
    std::fs::write(&path, parts.fleet(&second) + "# edited\n").unwrap();
    std::fs::write(&path, parts.fleet(&[("b", 9, "t2")])).unwrap();
    events.are(&["-c", "-d", "+b 10.0.0.9 t2"]).await;
    replace(&path, "clusters: []\ncontexts: null\nusers: []\n");
    events.are(&["-b"]).await;
}

#[tokio::test]
async fn a_swapped_link_of_a_projected_volume_is_noticed() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let root = dir.path();
    let version = |name: &str, token: &str| {
        std::fs::create_dir(root.join(name)).unwrap();
        std::fs::write(
            root.join(name).join("config"),
            parts.fleet(&[("a", 1, token)]),
        )
        .unwrap();
        let link = root.join("..tmp");
        std::os::unix::fs::symlink(name, &link).unwrap();
        std::fs::rename(link, root.join("..data")).unwrap();
    };
    version("..1", "old");
    std::os::unix::fs::symlink("..data/config", root.join("config")).unwrap();
    let mut events = Events::of(&watched(&root.join("config")));
    events.are(&["+a 10.0.0.1 old", "synced"]).await;
    for (name, token) in [("..2", "new"), ("..3", "newer"), ("..4", "newest")] {
        version(name, token);
        assert_eq!(events.next().await, Ok(format!("+a 10.0.0.1 {token}")));
    }
}

#[tokio::test]
async fn a_context_that_turned_bad_is_refused_alone_and_recovers() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    let sound = parts.fleet(&[("a", 1, "t1"), ("b", 2, "t2")]);
    std::fs::write(&path, &sound).unwrap();
    let mut events = Events::of(&watched(&path));
    events
        .are(&["+a 10.0.0.1 t1", "+b 10.0.0.2 t2", "synced"])
        .await;
    replace(
        &path,
        &sound.replace("token: t1", "exec: {command: c4nary}"),
    );
    let refused = events.next().await.unwrap();
    let start = format!("!a users[0].user.exec in {}: ", path.display());
    assert!(
        refused.starts_with(&start) && !refused.contains("c4nary"),
        "{refused}"
    );
    replace(&path, &sound);
    events.are(&["+a 10.0.0.1 t1"]).await;
}

#[tokio::test]
async fn a_broken_edit_takes_nothing_away_and_is_a_problem_until_it_is_mended() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    let fleet = |token: &str| parts.fleet(&[("a", 1, token), ("b", 2, "t2")]);
    let sound = fleet("t1");
    std::fs::write(&path, &sound).unwrap();
    let source = watched(&path);
    let mut events = Events::of(&source);
    events
        .are(&["+a 10.0.0.1 t1", "+b 10.0.0.2 t2", "synced"])
        .await;
    let in_contexts = sound.find("- name: b\n  context").unwrap();
    let too_large = " ".repeat(16 * 1024 * 1024 + 1);
    for (n, (what, content)) in [
        ("truncated to nothing", Some("")),
        ("cut off within a line", Some(&sound[..100])),
        ("cut off, yet YAML", Some(&sound[..in_contexts])),
        ("removed", None),
        ("no kubeconfig", Some("kind: Secret\n")),
        ("too large", Some(&too_large)),
    ]
    .into_iter()
    .enumerate()
    {
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        // Read as soon as it is noticed, or asked for; whichever is first. Nothing of it is told.
        problem(&source, &mut events, what).await;
        assert!(source.problems()[0].last_good_kept(), "{what}");
        // The next event is what mended it, and it concerns what that changed alone.
        let token = format!("mended{n}");
        replace(&path, &fleet(&token));
        assert_eq!(events.next().await, Ok(format!("+a 10.0.0.1 {token}")));
        assert_eq!(source.problems(), [], "{what}");
    }
}

/// Drives the stream until the source has a problem; it must tell nothing meanwhile.
async fn problem(source: &KubeconfigFile, events: &mut Events, what: &str) {
    let seen = async {
        while source.problems().is_empty() {
            source.reread(&ClusterKey::named("a"));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        event = events.next() => panic!("{what}: {event:?}"),
        () = seen => {}
    }
}

#[tokio::test]
async fn several_files_are_one_and_the_first_that_has_a_name_wins() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let [first, second, third] = ["1", "2", "3"].map(|name| dir.path().join(name));
    std::fs::write(&first, parts.fleet(&[("a", 1, "first")])).unwrap();
    std::fs::write(
        &second,
        parts.fleet(&[("a", 2, "second"), ("b", 2, "second")]),
    )
    .unwrap();
    let uses_others = "contexts: [{name: c, context: {cluster: b, user: a}}]\n";
    std::fs::write(&third, uses_others).unwrap();
    let source = KubeconfigFile::paths([&first, &second, &third])
        .quiet_for(std::time::Duration::from_millis(50));
    let mut events = Events::of(&source);
    events
        .are(&[
            "+a 10.0.0.1 first",
            "+b 10.0.0.2 second",
            "+c 10.0.0.2 first",
            "synced",
        ])
        .await;
    // What the first no longer has, the second gives.
    replace(&first, &parts.fleet(&[("x", 1, "first")]));
    events
        .are(&[
            "+a 10.0.0.2 second",
            "+c 10.0.0.2 second",
            "+x 10.0.0.1 first",
        ])
        .await;
}

#[tokio::test]
async fn a_missing_file_among_several_is_passed_over_until_it_comes() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let (missing, there) = (dir.path().join("a/b/config"), dir.path().join("there"));
    std::fs::write(&there, parts.fleet(&[("a", 1, "t")])).unwrap();
    let source = KubeconfigFile::paths([&missing, &there])
        .quiet_for(std::time::Duration::from_millis(50))
        .poll_every(std::time::Duration::from_secs(3_600));
    let mut events = Events::of(&source);
    events.are(&["+a 10.0.0.1 t", "synced"]).await;
    let problems = source.problems();
    assert_eq!(problems[0].reason(), &FileProblemReason::Missing);
    assert!(!problems[0].last_good_kept());
    std::fs::create_dir_all(missing.parent().unwrap()).unwrap();
    std::fs::write(&missing, parts.fleet(&[("b", 2, "t")])).unwrap();
    events.are(&["+b 10.0.0.2 t"]).await;
}

#[tokio::test]
async fn without_a_sound_file_the_stream_fails_and_the_next_one_may_not() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    let source = watched(&path);
    let mut events = Events::of(&source);
    let error = events.next().await.unwrap_err();
    assert!(error.contains("config is not there"), "{error}");
    assert!(events.ends().await);
    std::fs::write(&path, parts.fleet(&[("a", 1, "t")])).unwrap();
    Events::of(&source).are(&["+a 10.0.0.1 t", "synced"]).await;

    let nothing = KubeconfigFile::paths(Vec::<std::path::PathBuf>::new());
    let error = Events::of(&nothing).next().await.unwrap_err();
    assert!(error.contains("$KUBECONFIG"), "{error}");
}

#[tokio::test]
async fn a_stream_that_begins_while_the_file_is_broken_tells_the_last_good_state() {
    let (parts, dir) = (Parts::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("config");
    std::fs::write(&path, parts.fleet(&[("a", 1, "t")])).unwrap();
    let source = watched(&path);
    Events::of(&source).are(&["+a 10.0.0.1 t", "synced"]).await;
    std::fs::remove_file(&path).unwrap();
    Events::of(&source).are(&["+a 10.0.0.1 t", "synced"]).await;
    assert_eq!(source.problems()[0].reason(), &FileProblemReason::Missing);
}
