//! Credentials that programs give, which an operator has allowed. Each program is a real child.
#![cfg(target_os = "linux")]

use std::time::Duration;

use clustercache::{
    AccessChange, ClusterAccess, ClusterKey, ClusterSource, Identity, SourceEvent, SourcedAccess,
    Upsert,
};
use clustercache_kubeconfig::{KubeconfigFile, Policy};

mod support;
use support::{
    events::Events,
    programs::{Programs, answer, eventually, runs, token, token_for},
};

fn key(name: &str) -> ClusterKey {
    ClusterKey::named(name)
}

/// The stream of a source, up to its `Synced`: each of the contexts waits for its program.
async fn waiting(source: &KubeconfigFile, contexts: &[&str]) -> Events {
    let mut events = Events::of(source);
    for context in contexts {
        let event = events.next().await.unwrap();
        assert!(event.starts_with(&format!("?{context} users[")), "{event}");
        assert!(event.ends_with("waiting for what `sh` says"), "{event}");
    }
    events.are(&["synced"]).await;
    events
}

/// The refusal of `a`, whose program is this script.
async fn refusal(script: &str) -> String {
    let programs = Programs::new();
    let user = programs.user("login", script);
    let source = programs.source(&[("a", 1, &user)]);
    let event = waiting(&source, &["a"]).await.next().await.unwrap();
    let start = format!(
        "!a users[0].user.exec in {}: `sh` gave no credential: ",
        programs.path("config").display()
    );
    event
        .strip_prefix(&start)
        .unwrap_or_else(|| panic!("{event}"))
        .to_owned()
}

#[tokio::test]
async fn what_a_program_gives_is_the_credential() {
    let programs = Programs::new();
    let user = programs.user("login", &token("t$RUN"));
    let beta = user
        .replace("/v1,", "/v1beta1,")
        .replace("interactiveMode: Never, ", "")
        .replace("/login'", "/beta'");
    programs.script("beta", &token("beta").replace("/v1", "/v1beta1"));
    let pem = |data: &str| {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let pem = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
        pem.replace('\n', "\\n")
    };
    let certificate = format!(
        r#""clientCertificateData":"{}","clientKeyData":"{}""#,
        pem(&programs.parts.certificate),
        pem(&programs.parts.key)
    );
    let with_certificate = programs.user("certificate", &answer(&certificate));
    let source = programs.source(&[
        ("a", 1, &user),
        ("b", 2, &beta),
        ("c", 3, &with_certificate),
        ("d", 4, "token: inline"),
    ]);
    let mut events = Events::of(&source);
    for _ in 0..3 {
        assert!(events.next().await.unwrap().starts_with('?'));
    }
    events.are(&["+d 10.0.0.4 inline", "synced"]).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(events.next().await.unwrap());
    }
    told.sort();
    let expected = [
        "+a 10.0.0.1 t1",
        "+b 10.0.0.2 beta",
        "+c 10.0.0.3 certificate",
    ];
    assert_eq!(told, expected);
    assert_eq!(source.problems(), []);
}

#[tokio::test]
async fn a_program_is_told_what_the_protocol_says_and_nothing_else() {
    let programs = Programs::new();
    let script = format!(
        "env > $DIR/env.txt\nprintf '%s' \"$KUBERNETES_EXEC_INFO\" > $DIR/info.txt\necho \"$0|$1|$2\" > $DIR/args.txt\n{}",
        token("t")
    );
    let user = programs.user("login", &script).replace(
        "args: [",
        "provideClusterInfo: true, env: [{name: FROM_FILE, value: 'f 1'}, {name: BOTH, value: file}], args: [",
    );
    let user = user.replace("login']", "login', 'two words', '$HOME']");
    let path = programs.write(&[("a", 1, &user)]);
    let document = std::fs::read_to_string(&path).unwrap().replace(
        "certificate-authority-data",
        "tls-server-name: api, proxy-url: 'http://p:3128', extensions: [{name: other, extension: 1}, \
         {name: client.authentication.k8s.io/exec, extension: {audience: '7', deep: [1, 2.5, true, null, x]}}], \
         certificate-authority-data",
    );
    support::events::replace(&path, &document);
    let policy = Policy::operator()
        .allow_exec(["sh"])
        .exec_env("FROM_OPERATOR", "o")
        .exec_env("BOTH", "operator");
    let source = support::events::watched(&path).policy(policy);
    let mut events = waiting(&source, &["a"]).await;
    events.are(&["+a 10.0.0.1 t"]).await;

    let read = |name: &str| std::fs::read_to_string(programs.path(name)).unwrap();
    let env = read("env.txt");
    let shells = ["PWD", "_", "SHLVL", "OLDPWD"];
    let mut names: Vec<_> = env
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| !shells.contains(name))
        .collect();
    names.retain(|(name, _)| *name != "KUBERNETES_EXEC_INFO");
    names.sort_unstable();
    let own = std::env::var("PATH").unwrap();
    let expected = [
        ("BOTH", "operator"),
        ("FROM_FILE", "f 1"),
        ("FROM_OPERATOR", "o"),
        ("PATH", &own),
    ];
    assert_eq!(names, expected);
    let script = programs.path("login");
    assert_eq!(
        read("args.txt"),
        format!("{}|two words|$HOME\n", script.display())
    );
    let info: serde_json::Value = serde_json::from_str(&read("info.txt")).unwrap();
    let expected = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {
            "interactive": false,
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "tls-server-name": "api",
                "certificate-authority-data": programs.parts.ca,
                "proxy-url": "http://p:3128",
                "config": {"audience": "7", "deep": [1, 2.5, true, null, "x"]},
            },
        },
    });
    assert_eq!(info, expected);
}

#[tokio::test]
async fn without_provide_cluster_info_a_program_learns_nothing_of_the_cluster() {
    let programs = Programs::new();
    let script = "printf '%s' \"$KUBERNETES_EXEC_INFO\" > $DIR/info.txt\n".to_owned() + &token("t");
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    events.are(&["+a 10.0.0.1 t"]).await;
    let info = std::fs::read_to_string(programs.path("info.txt")).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let expected = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": false},
    });
    assert_eq!(info, expected);
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_what_it_started_and_others_go_on() {
    let programs = Programs::new();
    let hangs = "sleep 1000 &\necho $! > $DIR/child\necho $$ > $DIR/parent\nwait";
    let hangs = programs.user("hangs", hangs);
    let works = programs.user("works", &token("t"));
    let source = programs.source(&[("a", 1, &hangs), ("b", 2, &works)]);
    let source = source.exec_deadline(Duration::from_secs(10));
    let mut events = waiting(&source, &["a", "b"]).await;
    events.are(&["+b 10.0.0.2 t"]).await;
    let pids = [programs.line("child").await, programs.line("parent").await];
    assert!(pids.iter().all(|pid| runs(pid)));
    let event = events.next().await.unwrap();
    assert!(event.starts_with("!a users[0].user.exec"), "{event}");
    assert!(event.contains("did not end within 10s"), "{event}");
    gone(&pids).await;
}

async fn gone(pids: &[String]) {
    eventually("an end", || pids.iter().all(|pid| !runs(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_program_that_floods_is_killed_at_the_limit() {
    for pipe in ["", ">&2"] {
        let refusal = refusal(&format!("yes c4narySECRET {pipe}")).await;
        assert!(
            refusal.starts_with("it printed more than 262144 bytes and was killed"),
            "{refusal}"
        );
        assert!(!refusal.contains("c4nary"), "{refusal}");
    }
}

#[tokio::test]
async fn a_program_that_fails_is_told_by_its_status_and_never_by_its_words() {
    let refused = refusal("echo c4narySECRET\necho c4narySECRET >&2\nexit 7").await;
    assert!(
        refused.starts_with("it failed with exit status: 7;"),
        "{refused}"
    );
    assert!(!refused.contains("c4nary"), "{refused}");
    let killed = refusal("kill -9 $$").await;
    assert!(killed.contains("signal: 9"), "{killed}");
}

#[tokio::test]
async fn an_answer_that_is_no_credential_says_what_it_lacks() {
    let v1 = r#"{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\""#;
    let mine = "client.authentication.k8s.io/v1,";
    for (script, expected) in [
        (
            "true".to_owned(),
            "it printed 0 bytes, which are no `ExecCredential`",
        ),
        (
            "echo c4narySECRET".into(),
            "it printed 13 bytes, which are no",
        ),
        (
            r#"echo '{"status":"c4narySECRET"}'"#.into(),
            "which are no `ExecCredential`",
        ),
        (r#"echo '{"status":{"token":"c4nary"}}'"#.into(), mine),
        (format!("echo \"{v1}}}\"").replace("/v1", "/v1beta1"), mine),
        (
            format!("echo \"{v1}}}\"").replace("ExecCredential", "Other"),
            mine,
        ),
        (
            format!("echo \"{v1}}}\""),
            "neither a token nor a client certificate",
        ),
        (
            answer(r#""token":"""#),
            "neither a token nor a client certificate",
        ),
        (
            answer(r#""clientKeyData":"c4nary""#),
            "only one of certificate and key",
        ),
        (
            answer(r#""token":"c4nary secret""#),
            "cannot be used: the token",
        ),
        (
            answer(r#""clientKeyData":"c4nary","clientCertificateData":"c4nary""#),
            "cannot be used: the client certificate has no certificate",
        ),
        (
            answer(r#""token":"c4nary","expirationTimestamp":"soon""#),
            "no RFC 3339 time",
        ),
        (
            token_for("c4nary", -60),
            "has a credential that has expired",
        ),
    ] {
        let refusal = refusal(&script).await;
        assert!(refusal.contains(expected), "{script}: {refusal}");
        assert!(!refusal.contains("c4nary"), "{refusal}");
    }
}

#[tokio::test]
async fn what_a_program_leaves_in_the_background_is_not_waited_for_and_goes_with_it() {
    let programs = Programs::new();
    let script = format!(
        "sleep 1000 > /dev/null &\necho $! > $DIR/child\n{}",
        token("t")
    );
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    events.are(&["+a 10.0.0.1 t"]).await;
    gone(&[programs.line("child").await]).await;
}

#[tokio::test]
async fn what_a_program_that_failed_leaves_in_the_background_goes_with_it() {
    let programs = Programs::new();
    let script = "sleep 1000 > /dev/null 2>&1 &\necho $! > $DIR/child\nexit 3";
    let user = programs.user("login", script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    let event = events.next().await.unwrap();
    assert!(event.contains("exit status: 3"), "{event}");
    gone(&[programs.line("child").await]).await;
}

#[tokio::test]
async fn what_holds_a_programs_output_open_is_killed_at_the_deadline() {
    let programs = Programs::new();
    let script = format!("sleep 1000 &\necho $! > $DIR/child\n{}", token("t"));
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let source = source.exec_deadline(Duration::from_secs(2));
    let mut events = waiting(&source, &["a"]).await;
    let event = events.next().await.unwrap();
    assert!(event.contains("did not end within 2s"), "{event}");
    gone(&[programs.line("child").await]).await;
}

#[tokio::test]
async fn no_more_than_sixteen_programs_run_at_once() {
    let programs = Programs::new();
    // Each takes the first place that is free.
    let script = format!(
        "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do\n\
         if mkdir $DIR/place.$n 2> /dev/null; then\nsleep 1\nrmdir $DIR/place.$n\n{}\nexit\nfi\ndone\n\
         touch $DIR/over\nexit 1",
        token("t")
    );
    let names: Vec<_> = (10..50).map(|n| format!("c{n}")).collect();
    let users: Vec<_> = names
        .iter()
        .map(|name| programs.user(name, &script))
        .collect();
    let contexts = names.iter().zip(&users);
    let contexts: Vec<_> = contexts
        .map(|(name, user)| (name.as_str(), 1, user.as_str()))
        .collect();
    let source = programs.source(&contexts);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut events = waiting(&source, &names).await;
    for _ in &names {
        assert!(events.next().await.unwrap().starts_with("+c"));
    }
    assert!(!programs.path("over").exists());
}

#[tokio::test]
async fn a_program_that_failed_is_run_again_until_it_works() {
    let programs = Programs::new();
    let script = format!("[ $RUN -ge 3 ] || exit 1\n{}", token("t$RUN"));
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    assert!(events.next().await.unwrap().starts_with("!a"));
    events.are(&["+a 10.0.0.1 t3"]).await;
}

#[tokio::test]
async fn a_reread_runs_the_clusters_own_program_again() {
    let programs = Programs::new();
    let a = programs.user("a", &token("a$RUN"));
    let b = programs.user("b", &token("b$RUN"));
    let source = programs.source(&[("a", 1, &a), ("b", 2, &b)]);
    let mut events = waiting(&source, &["a", "b"]).await;
    let mut told = [events.next().await.unwrap(), events.next().await.unwrap()];
    told.sort();
    assert_eq!(told, ["+a 10.0.0.1 a1", "+b 10.0.0.2 b1"]);
    source.reread(&key("b"));
    events.are(&["+b 10.0.0.2 b2"]).await;
    source.reread(&key("b"));
    events.are(&["+b 10.0.0.2 b3"]).await;
    assert_eq!((programs.runs("a"), programs.runs("b")), (1, 3));
}

#[tokio::test]
async fn a_renewal_that_fails_leaves_the_last_good_credential() {
    let programs = Programs::new();
    let script = format!(
        "[ $RUN -ne 2 ] && [ $RUN -ne 3 ] || exit 1\n{}",
        token("t$RUN")
    );
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    events.are(&["+a 10.0.0.1 t1"]).await;
    // It fails twice, which is not told, and then gives a new one.
    source.reread(&key("a"));
    events.are(&["+a 10.0.0.1 t4"]).await;
}

#[tokio::test]
async fn a_credential_is_renewed_and_nothing_else_changes() {
    let programs = Programs::new();
    let end = |seconds| jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    let (soon, later) = (end(10), end(3_600));
    let first = answer(&format!(r#""token":"t1","expirationTimestamp":"{soon}""#));
    let second = answer(&format!(r#""token":"t2","expirationTimestamp":"{later}""#));
    let script = format!("if [ $RUN -eq 1 ]; then\n{first}\nelse\n{second}\nfi");
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    let old = events.access().await;
    let told = old.credential().expires().map(jiff::Timestamp::try_from);
    assert_eq!(told.unwrap().unwrap(), soon);
    let new = events.access().await;
    assert_eq!(old.change_to(&new), AccessChange::Credential);
    let told = new.credential().expires().map(jiff::Timestamp::try_from);
    assert_eq!(told.unwrap().unwrap(), later);
}

#[tokio::test]
async fn the_same_token_with_a_later_end_is_told() {
    let programs = Programs::new();
    let (first, second) = (token_for("t", 3_600), token_for("t", 7_200));
    let script = format!("if [ $RUN -eq 1 ]; then\n{first}\nelse\n{second}\nfi");
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    let old = events.access().await;
    source.reread(&key("a"));
    let new = events.access().await;
    assert_eq!(old.change_to(&new), AccessChange::None);
    assert!(old.credential().expires() < new.credential().expires());
}

#[tokio::test]
async fn a_credential_that_cannot_be_renewed_holds_until_its_end_and_no_longer() {
    let programs = Programs::new();
    let first = token_for("t1", 10);
    let script = format!("[ $RUN -eq 1 ] || exit 1\n{first}");
    let user = programs.user("login", &script);
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    let old = events.access().await;
    let refused = events.next().await.unwrap();
    assert!(refused.starts_with("!a users[0].user.exec"), "{refused}");
    assert!(refused.contains("exit status: 1"), "{refused}");
    assert!(
        std::time::SystemTime::from(jiff::Timestamp::now()) >= old.credential().expires().unwrap()
    );
    assert!(programs.runs("login") >= 2);
}

#[tokio::test]
async fn a_program_is_killed_when_its_cluster_goes_and_when_the_source_stops() {
    let programs = Programs::new();
    let hangs = |name: &str| {
        let script = format!(
            "sleep 1000 &\necho $! > $DIR/{name}.child\necho $$ > $DIR/{name}.parent\nwait"
        );
        programs.user(name, &script)
    };
    let (a, b) = (hangs("a"), hangs("b"));
    let source = programs
        .source(&[("a", 1, &a), ("b", 2, &b)])
        .exec_deadline(Duration::from_secs(3_600));
    let mut events = waiting(&source, &["a", "b"]).await;
    // It runs as long as somebody listens.
    let pids = async |name: &str| {
        [
            programs.line(&format!("{name}.child")).await,
            programs.line(&format!("{name}.parent")).await,
        ]
    };
    let listening = async {
        let event = events.next().await;
        panic!("{event:?}");
    };
    let (a, b) = tokio::select! {
        pids = async { (pids("a").await, pids("b").await) } => pids,
        () = listening => unreachable!(),
    };
    programs.write(&[("b", 2, &hangs("b"))]);
    events.are(&["-a"]).await;
    gone(&a).await;
    assert!(b.iter().all(|pid| runs(pid)), "the other goes on");
    drop(events);
    gone(&b).await;
}

#[tokio::test]
async fn contexts_of_one_user_share_a_run() {
    let programs = Programs::new();
    let user = programs.user("login", &token("t$$"));
    let path = programs.write(&[("a", 1, &user), ("b", 2, &user)]);
    let source = support::events::watched(&path).policy(Policy::operator().allow_exec(["sh"]));
    let mut events = waiting(&source, &["a", "b"]).await;
    for name in ["+a ", "+b "] {
        assert!(events.next().await.unwrap().starts_with(name));
    }
    assert_eq!(programs.runs("login"), 1);
    // Told of the cluster, they are two.
    let told = user.replace("args:", "provideClusterInfo: true, args:");
    programs.write(&[("a", 1, &told), ("b", 2, &told)]);
    for _ in 0..2 {
        assert!(events.next().await.unwrap().starts_with('+'));
    }
    assert_eq!(programs.runs("login"), 3);
}

#[tokio::test]
async fn an_edit_that_changes_the_program_holds_what_was_told_until_it_has_answered() {
    let programs = Programs::new();
    let user = programs.user("old", &token("old"));
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    events.are(&["+a 10.0.0.1 old"]).await;
    programs.write(&[("a", 1, &programs.user("new", &token("new")))]);
    events.are(&["+a 10.0.0.1 new"]).await;
}

/// That `a` waits for its program; where it leads is told.
async fn gated(events: &mut Events) -> ClusterAccess {
    match events.event().await.unwrap() {
        SourceEvent::Upsert(Upsert {
            access: SourcedAccess::Gated(_),
            identity: Identity::ByCaOf(place),
            ..
        }) => place,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_context_that_moves_is_told_to_be_elsewhere_before_its_program_has_answered() {
    let programs = Programs::new();
    let user = |name: &str| programs.user(name, &token("old"));
    let held = |name: &str| {
        let waits = "until [ -e $DIR/go ]; do sleep 0.05; done\n";
        programs.user(name, &format!("{waits}{}", token("new")))
    };
    let source = programs.source(&[("a", 1, &user("old"))]);
    let mut events = waiting(&source, &["a"]).await;
    let old = events.access().await;

    // To another server of the same CA.
    programs.write(&[("a", 2, &held("new"))]);
    let place = gated(&mut events).await;
    assert_eq!(place.endpoint().url().host(), Some("10.0.0.2"));
    assert!(old.continues(&place));

    // To another cluster.
    let fleet = programs.parts.fleet(&[("a", 3, "REPLACED")]);
    let fleet = fleet.replace(&programs.parts.ca, &support::Parts::new().ca);
    let fleet = fleet.replace("token: REPLACED", &held("new"));
    support::events::replace(&programs.path("config"), &fleet);
    let place = gated(&mut events).await;
    assert_eq!(place.endpoint().url().host(), Some("10.0.0.3"));
    assert!(!old.continues(&place));

    std::fs::write(programs.path("go"), "").unwrap();
    events.are(&["+a 10.0.0.3 new"]).await;
}

#[tokio::test]
async fn a_context_that_moves_and_whose_program_fails_is_told_to_be_elsewhere() {
    let programs = Programs::new();
    let source = programs.source(&[("a", 1, &programs.user("old", &token("old")))]);
    let mut events = waiting(&source, &["a"]).await;
    events.are(&["+a 10.0.0.1 old"]).await;
    programs.write(&[("a", 2, &programs.user("new", "exit 1"))]);
    gated(&mut events).await;
    match events.event().await.unwrap() {
        SourceEvent::Upsert(Upsert {
            access: SourcedAccess::Refused(_),
            identity: Identity::ByCaOf(place),
            ..
        }) => assert_eq!(place.endpoint().url().host(), Some("10.0.0.2")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn thousands_of_accesses_are_not_made_in_one_turn() {
    const MANY: usize = 1_000;
    let programs = Programs::new();
    let user = programs.user("login", &token("t"));
    let names: Vec<_> = (0..MANY).map(|n| format!("c{n:04}")).collect();
    let contexts: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), 1, &*user))
        .collect();
    let source = programs.source(&contexts).policy(
        Policy::operator()
            .allow_exec(["sh"])
            .max_bytes(64 * 1024 * 1024),
    );
    let mut events = Events::of(&source);
    for _ in 0..MANY {
        assert!(events.next().await.unwrap().starts_with('?'));
    }
    events.are(&["synced"]).await;
    // What the program said is told of all of them, in turns; its own life takes some, too.
    let (event, turns) = events.turns().await;
    assert!(event.starts_with("+c0000"), "{event}");
    assert!(turns >= MANY / 64, "{turns}");
    drop(events);
    // A new stream knows what it said, and begins with all of them.
    let (event, turns) = Events::of(&source).turns().await;
    assert!(event.starts_with("+c0000"), "{event}");
    assert!(turns >= MANY / 64, "{turns}");
}

#[tokio::test]
async fn a_new_stream_has_the_credentials_of_the_last_one() {
    let programs = Programs::new();
    let user = programs.user("login", &token("t$RUN"));
    let source = programs.source(&[("a", 1, &user)]);
    let mut events = waiting(&source, &["a"]).await;
    events.are(&["+a 10.0.0.1 t1"]).await;
    drop(events);
    let mut events = Events::of(&source);
    events.are(&["+a 10.0.0.1 t1", "synced"]).await;
}
