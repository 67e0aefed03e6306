//! One watch for all clusters, of metadata only. It lists at its begin and whenever its version is too old (410, as a status and as an event), is
//! bounded in time, and whoever asks for it again waits (the keeper does, with backoff, also after a clean end).

use std::{future::Future, time::Duration};

use clustercache::ClusterKey;
use futures_util::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::{PartialObjectMeta, Status},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{CA, CALL_WITHIN, EXTERNAL, LABEL, SecretIssuers, document, read, shortened};
use crate::{IssuerChange, IssuerError, backoff};

const WHAT: &str = "the Secrets of all clusters";

/// Objects a page.
const PAGE: u32 = 500;

/// How long one watch lasts, and how much longer we wait for its end.
const WATCH: Duration = Duration::from_secs(290);
const GRACE: Duration = Duration::from_secs(30);

/// Bookmarks come once a minute: a watch that is silent for longer is begun again, lest its connection is dead and nobody knows.
const SILENT: Duration = Duration::from_secs(90);

/// A watch that lived so long did not end at once.
const LONG: Duration = Duration::from_secs(10);

type Change = Result<IssuerChange, IssuerError>;

/// What is listed is told as changed, each with its version: what was read already is known by that.
pub(super) fn changes(issuers: SecretIssuers) -> BoxStream<'static, Change> {
    let listed = async move {
        let client = issuers.client(WHAT)?;
        let (changes, version) = list(&client).await?;
        let changes = stream::iter(changes.into_iter().map(Ok));
        Ok(changes.chain(watched(client, version)))
    };
    stream::once(listed).try_flatten().boxed()
}

async fn list(client: &Client) -> Result<(Vec<IssuerChange>, String), IssuerError> {
    let secrets = Api::<Secret>::all(client.clone());
    let mut params = ListParams::default().labels(LABEL).limit(PAGE);
    let mut changes = Vec::new();
    loop {
        let page = within(secrets.list_metadata(&params)).await?;
        changes.extend(page.items.iter().flat_map(|secret| of(client, secret)));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok((changes, page.metadata.resource_version.unwrap_or_default())),
        }
    }
}

/// One watch after the other, each from where the last one was. The first failure ends it, and so does a version that is too old: then all is
/// listed anew.
fn watched(client: Client, version: String) -> impl Stream<Item = Change> + Send {
    let watching = Watching {
        client,
        version,
        open: None,
        short: 0,
    };
    let changes = stream::try_unfold(watching, |mut watching| async move {
        let changes = watching.next().await?;
        let changes = stream::iter(changes.into_iter().map(Ok));
        Ok(Some((changes, watching)))
    });
    changes.try_flatten()
}

struct Watching {
    client: Client,
    version: String,
    open: Option<Open>,
    /// Watches in a row that ended at once.
    short: u32,
}

struct Open {
    events: BoxStream<'static, kube::Result<WatchEvent<PartialObjectMeta<Secret>>>>,
    since: Instant,
}

impl Watching {
    /// What the next event that tells something changes.
    async fn next(&mut self) -> Result<Vec<IssuerChange>, IssuerError> {
        loop {
            let open = if let Some(open) = &mut self.open {
                open
            } else {
                let open = watch(self.client.clone(), &self.version).await?;
                self.open.insert(open)
            };
            let until = open.since + WATCH + GRACE;
            let heard = Instant::now();
            let next = open.events.try_next();
            let Ok(event) = timeout_at(until.min(heard + SILENT), next).await else {
                self.open = None;
                continue;
            };
            match event.map_err(|error| failed(&error))? {
                Some(WatchEvent::Added(secret) | WatchEvent::Modified(secret)) => {
                    self.version = secret.resource_version().unwrap_or_default();
                    return Ok(of(&self.client, &secret));
                }
                Some(WatchEvent::Deleted(secret)) => {
                    self.version = secret.resource_version().unwrap_or_default();
                    let gone = of(&self.client, &secret).into_iter();
                    return Ok(gone
                        .map(|change| IssuerChange {
                            version: None,
                            ..change
                        })
                        .collect());
                }
                Some(WatchEvent::Bookmark(bookmark)) => {
                    self.version = bookmark.metadata.resource_version;
                }
                Some(WatchEvent::Error(status)) => return Err(refused(&status)),
                None => self.ended().await,
            }
        }
    }

    /// A watch that ends is begun again; a server that ends each at once is not asked all the time.
    async fn ended(&mut self) {
        let lived = self.open.take().map(|open| open.since.elapsed());
        if lived.is_some_and(|lived| lived > LONG) {
            self.short = 0;
            return;
        }
        self.short += 1;
        tokio::time::sleep(backoff::wait(self.short)).await;
    }
}

async fn watch(client: Client, version: &str) -> Result<Open, IssuerError> {
    let secrets = Api::<Secret>::all(client);
    let seconds = u32::try_from(WATCH.as_secs()).unwrap_or(u32::MAX);
    let params = WatchParams::default().labels(LABEL).timeout(seconds);
    let events = within(secrets.watch_metadata(&params, version)).await?;
    Ok(Open {
        events: events.boxed(),
        since: Instant::now(),
    })
}

/// What a Secret says of clusters: by its namespace, and without one where that is the client's own.
fn of(client: &Client, secret: &PartialObjectMeta<Secret>) -> Vec<IssuerChange> {
    let (name, namespace) = (secret.name_any(), secret.namespace().unwrap_or_default());
    let cluster = name.strip_suffix(EXTERNAL).or(name.strip_suffix(CA));
    let Some(cluster) = cluster.filter(|cluster| !cluster.is_empty()) else {
        return Vec::new();
    };
    let uid = secret.uid().unwrap_or_default();
    let resource_version = secret.resource_version().unwrap_or_default();
    let version = Some(document::version(&uid, &resource_version));
    let mut keys = vec![ClusterKey::new(&namespace, cluster)];
    if client.default_namespace() == namespace {
        keys.push(ClusterKey::named(cluster));
    }
    let change = |cluster| IssuerChange {
        cluster,
        version: version.clone(),
    };
    keys.into_iter().map(change).collect()
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, IssuerError> {
    match timeout(CALL_WITHIN, call).await {
        Ok(answer) => answer.map_err(|error| failed(&error)),
        Err(_) => Err(timed_out(CALL_WITHIN)),
    }
}

fn timed_out(after: Duration) -> IssuerError {
    let what = WHAT.to_owned();
    IssuerError::TimedOut { what, after }
}

fn failed(error: &kube::Error) -> IssuerError {
    match error {
        kube::Error::Api(status) => refused(status),
        _ => IssuerError::Unreachable {
            what: WHAT.to_owned(),
            why: shortened(&read::chain(error)),
        },
    }
}

/// Also 410, of an answer and of an event: its version is too old, and all is listed anew.
fn refused(status: &Status) -> IssuerError {
    IssuerError::Status {
        what: WHAT.to_owned(),
        status: status.code,
        message: shortened(&status.message),
    }
}
