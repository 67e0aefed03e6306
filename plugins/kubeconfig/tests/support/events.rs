//! A source's events as short texts, waited for under a generous limit.

use std::{path::Path, time::Duration};

use clustercache::{ClusterAccess, ClusterSource, SourceError, SourceEvent, SourcedAccess, Upsert};
use clustercache_kubeconfig::KubeconfigFile;
use futures_util::{StreamExt, stream::BoxStream};
use secrecy::ExposeSecret;

pub struct Events(BoxStream<'static, Result<SourceEvent, SourceError>>);

impl Events {
    pub fn of(source: &KubeconfigFile) -> Self {
        Self(source.events())
    }

    /// The next event: `+name host token`, `!name why`, `?name why`, `-name` or `synced`; or an error's text.
    pub async fn next(&mut self) -> Result<String, String> {
        let event = self.event().await.map_err(|error| error.to_string())?;
        Ok(text(event))
    }

    /// The next event, and how often the stream was polled for it.
    pub async fn turns(&mut self) -> (String, usize) {
        let mut turns = 0;
        let event = std::future::poll_fn(|cx| {
            turns += 1;
            self.0.poll_next_unpin(cx)
        });
        let event = tokio::time::timeout(Duration::from_secs(60), event).await;
        let event = event
            .expect("an event in time")
            .expect("the stream goes on");
        (text(event.unwrap()), turns)
    }

    pub async fn event(&mut self) -> Result<SourceEvent, SourceError> {
        let event = tokio::time::timeout(Duration::from_secs(60), self.0.next());
        let event = event.await.expect("an event in time");
        event.expect("the stream goes on")
    }

    /// The access of the next event.
    pub async fn access(&mut self) -> ClusterAccess {
        match self.event().await.unwrap() {
            SourceEvent::Upsert(Upsert {
                access: SourcedAccess::Ready(access),
                ..
            }) => access,
            other => panic!("{other:?}"),
        }
    }

    /// The next events are these, in this order.
    #[track_caller]
    pub fn are<'a>(&'a mut self, expected: &'a [&'a str]) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            for expected in expected {
                let event = self.next().await;
                assert_eq!(event.as_deref(), Ok(*expected), "{caller}");
            }
        }
    }

    pub async fn ends(&mut self) -> bool {
        let end = tokio::time::timeout(Duration::from_secs(30), self.0.next());
        end.await.expect("an end in time").is_none()
    }
}

/// A source of one file that is quick to take an edit, and as good as never polls.
pub fn watched(path: &Path) -> KubeconfigFile {
    KubeconfigFile::at(path)
        .quiet_for(Duration::from_millis(50))
        .poll_every(Duration::from_secs(3_600))
}

/// As editors and kubectl do: beside it, and renamed onto it.
pub fn replace(path: &Path, content: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

fn text(event: SourceEvent) -> String {
    match event {
        SourceEvent::Synced => "synced".to_owned(),
        SourceEvent::Remove { key, .. } => format!("-{}", key.name()),
        SourceEvent::Upsert(cluster) => match cluster.access {
            SourcedAccess::Ready(access) => format!(
                "+{} {} {}",
                cluster.key.name(),
                access.endpoint().url().host().unwrap(),
                match access.credential().token() {
                    Some(token) => token.expose_secret(),
                    None => "certificate",
                }
            ),
            SourcedAccess::Refused(why) => format!("!{} {why}", cluster.key.name()),
            SourcedAccess::Gated(why) => format!("?{} {why}", cluster.key.name()),
        },
    }
}
