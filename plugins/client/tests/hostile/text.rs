//! What a cluster says is another party's text: where it shows, it cannot make a terminal, a log or a page show something else.

use clustercache::Phase;
use clustercache_client::KubeClient;
use clustercache_testkit::hostile::{Answer, Step, http2};
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

use crate::{
    canaries::{TOKEN, forms_of},
    ears,
    rig::{BOTH, H1, H2, Rig, healthy, soon},
};

/// Clears the screen, rings, goes back, turns the direction of writing, and ends a line.
const EVIL: &str = "\u{1b}[2J\u{7}\u{8}\u{202e}\u{9b}31m\r\n\0last";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_says_that_it_is_not_ready_for_is_escaped() {
    for protocol in BOTH {
        let mut rig = Rig::start().await;
        let said = Answer::new(500).body(format!("[+]ping ok\n[-]{EVIL} failed: {EVIL}\n"));
        let (key, _) = rig.add(
            "evil",
            protocol()
                .on("/readyz", said)
                .on("/version", Answer::new(200)),
        );
        rig.connected(&key).await;
        let state = rig.until(&key, |state| state.not_ready.is_some()).await;
        let text = state.not_ready.unwrap();
        ears::shows(&text);
        assert!(text.contains("\\u{1b}[2J"), "{text}");
        rig.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_refuses_with_is_escaped_in_errors_and_logs() {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": EVIL, "reason": EVIL, "code": 403,
        "details": { "name": EVIL, "kind": EVIL, "causes": [{ "message": EVIL, "reason": EVIL, "field": EVIL }] },
    });
    for protocol in BOTH {
        let mut rig = Rig::start().await;
        let behaviour = healthy(protocol)
            .on("/api/v1/nodes/status", Answer::json(403, &status))
            .on("/api/v1/nodes/text", Answer::new(403).body(EVIL))
            .on("/api/v1/nodes/error", Answer::new(500).body(EVIL))
            .on(
                "/api/v1/nodes/header",
                Answer::new(302).header("location", "\u{9b}"),
            );
        let (key, _) = rig.add("evil", behaviour);
        let client = rig.client(&key).await;
        for name in ["status", "text", "error", "header"] {
            let request = Request::get(format!("/api/v1/nodes/{name}"));
            let request = request.body(vec![]).unwrap();
            let error = soon(name, client.request::<Node>(request))
                .await
                .unwrap_err();
            ears::tells(&error);
        }
        rig.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_says_in_its_protocol_is_escaped() {
    let mut rig = Rig::start().await;
    let mut goaway = 0_u32.to_be_bytes().to_vec();
    goaway.extend(http2::ENHANCE_YOUR_CALM.to_be_bytes());
    goaway.extend(EVIL.as_bytes());
    let goaway = http2::frame(http2::GOAWAY, 0, 0, &goaway);
    for (number, behaviour) in [
        H1().on(
            "/readyz",
            Step::write(format!("HTTP/1.1 200 {EVIL}\r\n\r\n")),
        ),
        H1().on(
            "/readyz",
            Step::write(format!("HTTP/1.1 503 O\u{1b}K\r\nx: {EVIL}\r\n\r\n")),
        ),
        H1().on("/readyz", Step::write(EVIL)),
        H2().greeting([Step::Write(goaway.clone()), Step::HalfClose]),
        H2().on("/readyz", [Step::Write(goaway), Step::HalfClose]),
        H2().on_each("/readyz", |seen| {
            vec![Step::Write(http2::headers(
                seen.stream,
                200,
                [(EVIL, EVIL.as_bytes())],
                true,
            ))]
        }),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, _) = rig.add(&format!("evil-{number}"), behaviour);
        let error = rig.failed(&key).await;
        ears::shows(&error.message);
        ears::shows(&format!("{error:?}"));
    }
    rig.end().await;
}

/// A proxy that shows what it was sent: a secret is one all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_repeats_our_token_puts_it_into_no_log_and_no_state() {
    for protocol in BOTH {
        let mut rig = Rig::start().await;
        let said = Answer::new(500).body(format!("[-]auth failed: Bearer {TOKEN}\n"));
        let behaviour = protocol()
            .on("/readyz", said)
            .on("/version", Answer::new(200).header("x-seen", TOKEN))
            .on(
                "/api",
                Answer::new(403).body(format!("authorization: Bearer {TOKEN}")),
            );
        let (key, _) = rig.add("echo", behaviour);
        let state = rig.until(&key, |state| state.not_ready.is_some()).await;
        assert_eq!(state.phase, Phase::Connected);
        ears::shows(&format!("{state:?}"));
        let client = rig.client(&key).await;
        let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
        let error = client.request::<Node>(request).await.unwrap_err();
        assert!(ears::tells(&error).contains("authorization: Bearer"));
        rig.end().await;
    }
}

/// However it is encoded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_repeats_our_token_in_any_form_puts_it_into_no_log_and_no_state() {
    let mut rig = Rig::start().await;
    for (number, form) in forms_of(TOKEN.as_bytes()).into_iter().enumerate() {
        let said = Answer::new(500).body(format!("[-]auth failed: Bearer {form}\n"));
        let behaviour = H1()
            .on("/readyz", said)
            .on("/version", Answer::new(200))
            .on("/api", Answer::new(403).body(form.clone()));
        let (key, _) = rig.add(&format!("echo-{number}"), behaviour);
        let state = rig.until(&key, |state| state.not_ready.is_some()).await;
        let text = state.not_ready.unwrap();
        ears::shows(&text);
        assert!(text.contains("Bearer [our token]"), "{form}: {text}");
        let client = rig.client(&key).await;
        let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
        let error = client.request::<Node>(request).await.unwrap_err();
        assert!(ears::tells(&error).contains("our token"), "{form}");
    }
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_repeats_our_token_as_it_goes_away_puts_it_into_no_log_and_no_state() {
    let mut goaway = 0_u32.to_be_bytes().to_vec();
    goaway.extend(http2::ENHANCE_YOUR_CALM.to_be_bytes());
    goaway.extend(format!("who is Bearer {TOKEN}?").as_bytes());
    let goaway = [
        Step::Write(http2::frame(http2::GOAWAY, 0, 0, &goaway)),
        Step::HalfClose,
    ];
    let mut rig = Rig::start().await;
    for (number, behaviour) in [
        H2().greeting(goaway.clone()),
        H2().on("/readyz", goaway.clone()),
        healthy(H2).on("/api/v1/nodes", goaway),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, _) = rig.add(&format!("leaves-{number}"), behaviour);
        if number == 2 {
            let nodes: Api<Node> = Api::all(rig.client(&key).await);
            let error = soon("a call", nodes.get("a")).await.unwrap_err();
            ears::tells(&error);
            continue;
        }
        let error = rig.failed(&key).await;
        ears::shows(&format!("{} {error:?}", error.message));
    }
    rig.end().await;
}

/// The same in answers of which nobody would think that they are not proper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_repeats_our_token_in_its_answers_puts_it_into_nothing_of_ours() {
    let version = serde_json::json!({
        "major": "1", "minor": "37", "gitVersion": format!("v1.37.2-{TOKEN}"), "platform": TOKEN,
    });
    let watch = Answer::new(200).header("x-seen", TOKEN).body("");
    for protocol in BOTH {
        let mut rig = Rig::start().await;
        let behaviour = protocol()
            .on("/readyz", Answer::new(200).body(TOKEN))
            .on("/version", Answer::json(200, &version))
            .on(
                "/api/v1/namespaces/kube-system",
                Answer::json(200, &serde_json::json!({ "metadata": { "uid": TOKEN } })),
            )
            .on("/api/v1/nodes", watch.clone())
            .on(
                "/apis",
                Answer::json(
                    200,
                    &serde_json::json!({ "kind": "APIGroupList", "groups": TOKEN }),
                ),
            )
            .on(
                "/api",
                Answer::json(200, &serde_json::json!({ "kind": TOKEN })),
            );
        let (key, server) = rig.add("echo", behaviour);
        let cluster = rig.connected(&key).await;
        let client = cluster.get::<KubeClient>().unwrap();
        // What is asked for next.
        let uid = server.when(|counts| counts.requests_to("/api/v1/namespaces/kube-system") > 0);
        soon("its version", uid).await;
        let version = client.server_version().unwrap();
        assert!(version.git_version.starts_with("v1.37.2-"));
        ears::shows(&format!("{version} {version:?}"));
        ears::tells(&client.discovery().await.unwrap_err());
        let request = Request::get("/api/v1/nodes?watch=true")
            .body(vec![])
            .unwrap();
        drop(
            client
                .client()
                .request_events::<Node>(request)
                .await
                .unwrap(),
        );
        assert_eq!(client.kube_system_uid(), None);
        rig.end().await;
    }
}

/// What is no answer of ours to read, `kube` logs, unless it is not listened to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_kube_logs_of_an_answer_is_heard_by_nobody_where_its_caller_listens_to_nothing() {
    let mut rig = Rig::start().await;
    let secret = serde_json::json!({ "kind": "Node", "metadata": TOKEN });
    let behaviour = healthy(H2).on("/api/v1/nodes/a", Answer::json(200, &secret));
    let (key, _) = rig.add("odd", behaviour);
    let nodes: Api<Node> = Api::all(rig.client(&key).await);
    let quiet = nodes.get("a").with_subscriber(NoSubscriber::default());
    assert!(matches!(quiet.await, Err(kube::Error::SerdeError(_))));
    assert_eq!(ears::faults(), Vec::<String>::new());
    nodes.get("a").await.unwrap_err();
    assert_eq!(ears::faults().len(), 1, "as ever");
    rig.end().await;
}
