//! What is known of every connected cluster: its server's version, and the UID of its namespace kube-system, by which clusters are told
//! apart. Asked in the background after the connection is up, until both are known, and every few hours, as servers are upgraded under
//! their connections' feet; that it cannot be read is nobody's failure.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::sleep;

use crate::{
    ServerVersion,
    intern::Interner,
    transport::{Class, Lane, Transport},
};

/// A fleet that connects at once has other things to do first.
const LATER: Duration = Duration::from_secs(1);
const SPREAD: Duration = Duration::from_secs(4);
/// What could not be read is asked for again after so long, then twice that, and so on.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// And after so long where the credential is refused: that is for the health check to find out, which asks by its own schedule.
const REFUSED: Duration = Duration::from_secs(60);
/// What is known may have changed.
const ANEW: Duration = Duration::from_secs(3 * 60 * 60);
/// The most that is read of an answer, in bytes.
const MOST: usize = 64 << 10;
/// A UID has 36 characters.
const LONGEST_UID: usize = 128;

/// A fleet has few versions.
static VERSIONS: LazyLock<Interner<ServerVersion>> = LazyLock::new(Interner::new);

#[derive(Default)]
pub(crate) struct About {
    version: ArcSwapOption<ServerVersion>,
    kube_system_uid: ArcSwapOption<Box<str>>,
}

impl About {
    pub(crate) fn version(&self) -> Option<Arc<ServerVersion>> {
        self.version.load_full()
    }

    pub(crate) fn kube_system_uid(&self) -> Option<String> {
        let uid = self.kube_system_uid.load();
        uid.as_ref().map(ToString::to_string)
    }

    /// Asks, when the others who connect now have done so, and for ever again.
    pub(crate) async fn keep(self: Arc<Self>, transport: Transport) {
        let (mut wait, mut backoff) = (LATER + SPREAD.mul_f64(fastrand::f64()), FIRST);
        loop {
            sleep(wait).await;
            // Boxed: while it sleeps, its task is small.
            let learnt = Box::pin(self.learn(&transport)).await;
            wait = after(learnt, &mut backoff);
        }
    }

    pub(crate) async fn learn(&self, transport: &Transport) -> Learnt {
        let mut known = 0;
        // Both are shown.
        let asker = transport.asker();
        let version = read(transport, "/version").await;
        if version == Err(Some(StatusCode::UNAUTHORIZED)) {
            return Learnt::Refused;
        }
        if let Ok(body) = version
            && let Some(version) = ServerVersion::parse(&body, |text| asker.hidden(text))
        {
            known += 1;
            self.version.store(Some(VERSIONS.intern(version)));
        }
        if let Ok(body) = read(transport, "/api/v1/namespaces/kube-system").await
            && let Some(uid) = uid(&body)
            && asker.hidden(&uid) == *uid
        {
            known += 1;
            self.kube_system_uid.store(Some(Arc::new(uid)));
        }
        if known == 2 {
            Learnt::Both
        } else {
            Learnt::Less
        }
    }
}

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    Both,
    Less,
    /// 401.
    Refused,
}

/// How long to wait before it is asked again. A fleet does not ask all at once.
fn after(learnt: Learnt, backoff: &mut Duration) -> Duration {
    let mut least = || std::mem::replace(backoff, (*backoff * 2).min(LONGEST));
    let least = match learnt {
        Learnt::Both => {
            *backoff = FIRST;
            ANEW
        }
        Learnt::Less => least(),
        Learnt::Refused => least().max(REFUSED),
    };
    least.mul_f64(1.0 + fastrand::f64())
}

/// A small answer; if there is no good one, its status, where it has one.
async fn read(transport: &Transport, path: &str) -> Result<Vec<u8>, Option<StatusCode>> {
    let request = Request::get(path).extension(Lane::Bulk);
    let request = request.body(Body::empty()).map_err(|_| None)?;
    let answer = transport.call_as(request, Class::Call).await;
    let answer = answer.map_err(|_| None)?;
    if !answer.status().is_success() {
        return Err(Some(answer.status()));
    }
    let mut body = answer.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| None)?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > MOST {
            return Err(None);
        }
    }
    Ok(bytes)
}

fn uid(body: &[u8]) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let Namespace { metadata } = serde_json::from_slice(body).ok()?;
    let uid = metadata.uid;
    let is_uid = (1..=LONGEST_UID).contains(&uid.len());
    (is_uid && uid.bytes().all(|byte| byte.is_ascii_graphic())).then(|| uid.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_asked_for_ever_more_seldom_and_what_is_known_every_few_hours() {
        let mut backoff = FIRST;
        let mut least = FIRST;
        for _ in 0..20 {
            let wait = after(Learnt::Less, &mut backoff);
            assert!(wait >= least && wait <= least * 2, "{wait:?}");
            least = (least * 2).min(LONGEST);
        }
        assert_eq!(least, LONGEST);
        let waits: Vec<_> = (0..100)
            .map(|_| after(Learnt::Both, &mut backoff))
            .collect();
        assert!(waits.iter().all(|wait| *wait >= ANEW && *wait <= ANEW * 2));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
        assert!(after(Learnt::Less, &mut backoff) <= FIRST * 2);
    }

    #[test]
    fn while_the_credential_is_refused_nothing_is_asked_twice_within_a_minute() {
        let mut backoff = FIRST;
        for _ in 0..20 {
            assert!(after(Learnt::Refused, &mut backoff) >= Duration::from_secs(60));
        }
    }

    #[test]
    fn only_what_can_be_a_uid_is_one() {
        let of = |uid: &str| uid_of(&format!(r#"{{"metadata":{{"uid":{uid}}}}}"#));
        assert_eq!(of(r#""0b1c-2""#).as_deref(), Some("0b1c-2"));
        for other in [r#""""#, r#""a b""#, r#""a\u001b""#, "7", "null"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(of(&format!("{:?}", "x".repeat(LONGEST_UID + 1))), None);
    }

    fn uid_of(body: &str) -> Option<Box<str>> {
        uid(body.as_bytes())
    }
}
