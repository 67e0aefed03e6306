//! A cluster that says later, never, or elsewhere: the deadline of a call holds, requests are counted on one hand, and nothing is followed.

use clustercache::FailureKind;
use clustercache_client::TransportError;
use clustercache_testkit::hostile::{Answer, HostileServer};
use http::Request;

use crate::{
    ears,
    rig::{BOTH, Rig, healthy, soon},
};

/// No client has reason to ask more often in the two seconds of a call.
const REQUESTS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_retry_after_says_a_call_ends_by_its_deadline_after_a_few_requests() {
    let absurd = [
        None,
        Some("0"),
        Some("1"),
        Some("10"),
        Some("4294967296"),
        Some("99999999999999999999999999"),
        Some("-1"),
        Some("1e9"),
        Some("soon"),
        Some("Fri, 31 Dec 9999 23:59:59 GMT"),
        Some("Thu, 01 Jan 1970 00:00:00 GMT"),
        Some(""),
    ];
    for status in [503, 429] {
        for protocol in BOTH {
            let mut rig = Rig::start().await;
            let calls = absurd.iter().enumerate().map(|(number, after)| {
                let mut answer = Answer::new(status).body("not now");
                if let Some(after) = after {
                    answer = answer.header("retry-after", *after);
                }
                rig.add(
                    &format!("later-{number}"),
                    healthy(protocol).on("/api", answer),
                )
            });
            let clusters: Vec<_> = calls.collect();
            for (key, _) in &clusters {
                rig.connected(key).await;
            }
            // All at once: each may take its whole deadline.
            let calls = clusters.iter().map(|(key, server)| async {
                let client = rig.client(key).await;
                let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
                let error = soon("a call", client.request_text(request))
                    .await
                    .unwrap_err();
                ears::tells(&error);
                let said = match &error {
                    kube::Error::Api(said) => said.code == status,
                    kube::Error::Service(error) => {
                        matches!(error.downcast_ref(), Some(TransportError::Deadline { .. }))
                    }
                    _ => false,
                };
                assert!(said, "{error:?}");
                let asked = server.counts().requests_to("/api/v1/nodes");
                assert!((1..=REQUESTS).contains(&asked), "{asked} requests");
            });
            futures_util::future::join_all(calls).await;
            rig.end().await;
        }
    }
}

/// The health check is asked what it is asked, whatever it answers: a cluster cannot put off its own probes, nor make them more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_health_check_that_is_put_off_is_an_error_now() {
    let mut rig = Rig::start().await;
    for status in [429, 503] {
        for protocol in BOTH {
            let later = Answer::new(status).header("retry-after", "999999");
            let (key, server) = rig.add(
                &format!("put-off-{status}-{}", rig.servers()),
                protocol().on("/", later),
            );
            let error = rig.failed(&key).await;
            assert_eq!(error.kind, FailureKind::Status(status), "{}", error.message);
            // It is tried again before the hour that the server would like.
            soon(
                "the next attempt",
                server.when(|counts| counts.requests_to("/readyz") > 1),
            )
            .await;
        }
    }
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_an_error_after_one_request_wherever_it_points() {
    let elsewhere = HostileServer::start("elsewhere", healthy(crate::rig::H1)).unwrap();
    for protocol in BOTH {
        let mut rig = Rig::start().await;
        for status in [301, 302, 303, 307, 308] {
            for (number, location) in [
                "/api/v1/nodes/b".to_owned(),
                format!("{}/api/v1/nodes/b", elsewhere.url()),
                format!("http://{}/api/v1/nodes/b", elsewhere.addr()),
                format!("//{}/", elsewhere.addr()),
                String::new(),
            ]
            .into_iter()
            .enumerate()
            {
                let away = Answer::new(status).header("location", location);
                let behaviour = healthy(protocol).on("/api", away);
                let (key, server) = rig.add(&format!("away-{status}-{number}"), behaviour);
                let client = rig.client(&key).await;
                let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
                let error = client.request_text(request).await.unwrap_err();
                let text = ears::tells(&error);
                assert!(text.contains("redirects"), "{text}");
                assert_eq!(server.counts().requests_to("/api/v1/nodes"), 1);
                rig.remove(&key);
            }
        }
        rig.end().await;
    }
    assert_eq!(elsewhere.counts().connections, 0);
}

/// A connection is not taken for broken, nor a cluster for down, because calls on it are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_refused_cost_no_connection_and_no_verdict() {
    for protocol in BOTH {
        let mut rig = Rig::start().await;
        let behaviour = healthy(protocol)
            .on("/api/v1/nodes/busy", Answer::new(429))
            .on("/api/v1/nodes/broken", Answer::new(500))
            .on(
                "/api/v1/nodes/html",
                Answer::new(403).body("<html>no</html>"),
            )
            .on("/api/v1/nodes/none", Answer::new(404));
        let (key, server) = rig.add("refuses", behaviour);
        let client = rig.client(&key).await;
        let life = rig.connected(&key).await.generation().unwrap();
        for _ in 0..5 {
            for name in ["busy", "broken", "html", "none"] {
                let request = Request::get(format!("/api/v1/nodes/{name}"));
                let request = request.body(vec![]).unwrap();
                ears::tells(&client.request_text(request).await.unwrap_err());
            }
        }
        assert_eq!(rig.connected(&key).await.generation().unwrap(), life);
        assert!(rig.cache.state(&key).unwrap().last_error.is_none());
        // What is asked of a new cluster, and a probe on a busy machine, may have one of its own; twenty refusals have none.
        assert!(server.counts().connections < 4, "{:?}", server.counts());
        rig.end().await;
    }
}
