//! Asking a server what it serves: two requests, or one a group and version where the server is old. All of it has one deadline.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::{
    Client,
    client::Body,
    core::{GroupVersion, discovery::v2::ACCEPT_AGGREGATED_DISCOVERY_V2 as AGGREGATED},
};
use tokio::time::timeout;

use super::{
    Discovery, DiscoveryError,
    document::{Document, Group, Resource, Version},
    said::{self, Listed, Root, Wrong},
};

/// The most that is read of one document; a thousand kinds take one megabyte.
const MOST: usize = 16 << 20;
const MOST_TEXT: &str = "16 MiB, 100,000 objects";
/// From an old server: groups and versions, and how many are asked for at once.
const MOST_VERSIONS: usize = 1_000;
const AT_ONCE: usize = 4;

pub(super) async fn fetch(client: Client, after: Duration) -> Result<Discovery, DiscoveryError> {
    let fetched = timeout(after, fetch_all(&client)).await;
    fetched.map_err(|_| DiscoveryError::Deadline { after })?
}

async fn fetch_all(client: &Client) -> Result<Discovery, DiscoveryError> {
    let (core, others) = tokio::join!(groups(client, "/api"), groups(client, "/apis"));
    let groups = match (core, others) {
        // A server may well have none of the one kind, but not of both.
        (Err(error), Ok(groups)) | (Ok(groups), Err(error)) if is_not_found(&error) => groups,
        (core, others) => {
            let mut groups = core?;
            groups.extend(others?);
            groups
        }
    };
    Ok(Discovery(Document::of(groups)))
}

async fn groups(client: &Client, path: &str) -> Result<Vec<Group>, DiscoveryError> {
    let body = get(client, path, AGGREGATED).await?;
    match said::root(&body).map_err(|wrong| wrong.at(path))? {
        Root::Groups(groups) => Ok(groups),
        Root::Ask(listed) => ask(client, path, listed).await,
    }
}

async fn ask(
    client: &Client,
    root: &str,
    listed: Vec<Listed>,
) -> Result<Vec<Group>, DiscoveryError> {
    let versions: usize = listed.iter().map(|group| group.versions.len()).sum();
    if versions > MOST_VERSIONS {
        return Err(DiscoveryError::TooLarge {
            path: root.into(),
            limit: "1,000 versions",
        });
    }
    let asking = listed.iter().flat_map(|group| {
        let name = &*group.group;
        let versions = group.versions.iter();
        versions.map(move |version| ask_for(client, name, version))
    });
    // Made now: lazily, the closures would have to be general over lifetimes.
    let asking: Vec<_> = asking.collect();
    let mut answers = stream::iter(asking).buffered(AT_ONCE);
    let mut groups = Vec::new();
    for Listed { group, versions } in &listed {
        let mut asked = Vec::new();
        for name in versions {
            let resources = answers.next().await.expect("there is an answer a version");
            let incomplete = resources.is_none();
            asked.push(Version {
                name: name.clone(),
                incomplete,
                resources: resources.unwrap_or_default(),
            });
        }
        groups.push(Group {
            name: group.clone(),
            versions: asked.into(),
        });
    }
    Ok(groups)
}

/// None if the server cannot say: one extension server that is down does not take the others with it.
async fn ask_for(client: &Client, group: &str, version: &str) -> Option<Box<[Resource]>> {
    let root = if group.is_empty() { "api" } else { "apis" };
    let version_of_group = GroupVersion::gv(group, version).api_version();
    let path = format!("/{root}/{version_of_group}");
    let body = get(client, &path, "application/json").await.ok()?;
    said::resources(&body, group, version).ok()
}

async fn get(client: &Client, path: &str, accept: &str) -> Result<Bytes, DiscoveryError> {
    let request = Request::get(path)
        .header(header::ACCEPT, accept)
        .body(Body::empty())
        .map_err(kube::Error::HttpError);
    let answer = async { client.send(request?).await }.await;
    let failed = |source| DiscoveryError::Request {
        path: path.into(),
        source: Arc::new(source),
    };
    let answer = answer.map_err(failed)?;
    let status = answer.status();
    if !status.is_success() {
        return Err(DiscoveryError::Answered {
            path: path.into(),
            status: status.as_u16(),
        });
    }
    let mut body = answer.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(failed)?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > MOST {
            return Err(Wrong::TooMany.at(path));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

fn is_not_found(error: &DiscoveryError) -> bool {
    let not_found = StatusCode::NOT_FOUND.as_u16();
    matches!(error, DiscoveryError::Answered { status, .. } if *status == not_found)
}

impl Wrong {
    fn at(self, path: &str) -> DiscoveryError {
        let path = path.into();
        match self {
            Self::TooMany => DiscoveryError::TooLarge {
                path,
                limit: MOST_TEXT,
            },
            Self::Malformed(what) => DiscoveryError::Malformed { path, what },
        }
    }
}
