//! What one connection of a cluster leaves to the next: objects and the version that they are of, so that the next goes on from there and
//! lists nothing. Only what is of the very same cluster is taken.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use clustercache::{InitContext, Resource};
use clustercache_client::KubeClient;
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;

use crate::{
    ClusterInformers, Informers,
    stock::{Standing, Stock, View},
};

pub(crate) struct Warm {
    /// In the order in which they were declared.
    pub(crate) kinds: Vec<Kept>,
    /// The UID of `kube-system`, if it was known.
    kube_system: Option<String>,
}

pub(crate) struct Kept {
    view: Arc<View>,
    pages: bool,
}

impl Warm {
    pub(crate) fn of(informers: &ClusterInformers) -> Self {
        let kept = |stock: &Arc<Stock>| Kept {
            view: stock.view(),
            pages: stock.pages.load(Relaxed),
        };
        let client = informers.client.as_ref();
        Self {
            kinds: informers.stocks.iter().map(kept).collect(),
            kube_system: client.and_then(|client| client.kube_system_uid()),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.kinds
            .iter()
            .map(|kept| kept.view.objects.bytes())
            .sum()
    }

    /// Of the connection that this one is to replace, or of the last one; if that was to the same cluster, as far as it says so.
    pub(crate) async fn taken(cx: &InitContext, client: &Resource<KubeClient>) -> Option<Self> {
        let before = cx.predecessor::<Informers>();
        let before = before.map(|before| Self::of(&before));
        let warm = before.or_else(|| cx.kept::<Self>())?;
        if let Some(before) = &warm.kube_system
            && let Some(now) = kube_system(client).await
            && now != *before
        {
            let cluster = cx.key().shown();
            tracing::info!(%cluster, "another cluster answers at the old place: all is listed anew");
            return None;
        }
        Some(warm)
    }
}

impl Kept {
    pub(crate) fn put_in(&self, stock: &Stock) {
        stock.pages.store(self.pages, Relaxed);
        if self.view.objects.version.is_some() {
            stock.publish(View {
                objects: self.view.objects.clone(),
                // Until it is heard that the version is good still.
                standing: Standing::Unsynced,
                trouble: None,
            });
        }
    }
}

/// `None` if it cannot be read.
async fn kube_system(client: &Resource<KubeClient>) -> Option<String> {
    #[derive(Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    if let Some(uid) = client.kube_system_uid() {
        return Some(uid);
    }
    let request = http::Request::get("/api/v1/namespaces/kube-system").body(Body::empty());
    let answer = client.send(request.ok()?).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    let namespace: Namespace = serde_json::from_slice(&body).ok()?;
    Some(namespace.metadata.uid)
}
