//! What a connected cluster says of itself.

use super::rig::{Rig, soon};
use crate::about::{About, Learnt};

#[tokio::test]
async fn a_clusters_version_and_the_uid_of_kube_system_are_known() {
    let rig = Rig::new("about");
    let about = About::default();
    assert!(about.version().is_none() && about.kube_system_uid().is_none());
    soon(about.learn(&rig.transport)).await;
    let version = about.version().unwrap();
    assert_eq!((version.major, version.minor), (1, 37));
    assert_eq!(&*version.git_version, "v1.37.2");
    let path = "/api/v1/namespaces/kube-system";
    let namespace = rig.text(path).await.unwrap();
    let namespace: serde_json::Value = serde_json::from_str(&namespace).unwrap();
    assert_eq!(
        namespace["metadata"]["uid"].as_str().unwrap(),
        about.kube_system_uid().unwrap()
    );
}

#[tokio::test]
async fn clusters_of_one_version_share_what_is_kept_of_it() {
    let (one, other) = (About::default(), About::default());
    for about in [&one, &other] {
        soon(about.learn(&Rig::new("shared").transport)).await;
    }
    assert!(std::sync::Arc::ptr_eq(
        &one.version().unwrap(),
        &other.version().unwrap()
    ));
}

#[tokio::test]
async fn what_may_not_be_read_is_unknown_and_no_failure() {
    let rig = Rig::new("unread");
    rig.cluster.forbid("/api/v1/namespaces");
    rig.cluster.answer("/version", 200, vec![b'['; 1 << 20]);
    let about = About::default();
    soon(about.learn(&rig.transport)).await;
    assert!(about.version().is_none() && about.kube_system_uid().is_none());
    rig.cluster.answer_normally();
    soon(about.learn(&rig.transport)).await;
    assert!(about.version().is_some() && about.kube_system_uid().is_some());
}

#[tokio::test]
async fn a_cluster_that_refuses_the_credential_is_asked_no_further() {
    let rig = Rig::new("refused");
    let token = rig.cluster.token();
    rig.cluster.revoke_token(&token);
    let before = rig.cluster.counters().requests.total();
    let about = About::default();
    assert_eq!(soon(about.learn(&rig.transport)).await, Learnt::Refused);
    assert_eq!(rig.cluster.counters().requests.total(), before + 1);
    rig.cluster.accept_token(&token);
    assert_eq!(soon(about.learn(&rig.transport)).await, Learnt::Both);
}
