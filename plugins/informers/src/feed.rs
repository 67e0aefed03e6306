//! Informers that are fed by hand, without a cluster: for unit tests of reconcilers.

use std::{any::TypeId, sync::Arc};

use tokio::time::Instant;

use crate::{ClusterInformers, Informers, keeper::Keeper, line::Line, version::Version};

/// Feeds [`ClusterInformers`] that belong to no cluster; see [`Informers::by_hand`].
pub struct Feed {
    keepers: Vec<Keeper>,
}

/// What was fed cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The kind was never declared.
    #[error("{what} is not declared; declare it by Informers::kind")]
    NotDeclared {
        /// The type.
        what: &'static str,
    },
    /// It is no line of a watch, or no object with a name.
    #[error("what was fed is no event of a watch that tells of an object")]
    NoEvent {
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Informers {
    /// What readers get, without a cluster: for unit tests, which say themselves what there is.
    ///
    /// ```
    /// use clustercache_informers::{Informers, Kind};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (informers, mut feed) = Informers::new().kind(Kind::<Pod>::new()).by_hand();
    /// assert!(informers.store::<Pod>().is_err(), "not synced");
    /// feed.synced::<Pod>()?;
    /// feed.line::<Pod>(br#"{"type":"ADDED","object":{"metadata":{"name":"web","namespace":"default"}}}"#)?;
    /// assert_eq!(informers.store::<Pod>()?.len(), 1);
    /// // With the testkit: test.put::<Informers>(&key, informers).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn by_hand(&self) -> (ClusterInformers, Feed) {
        let stocks = self.stocks(None, Instant::now());
        let keepers = stocks
            .iter()
            .map(|stock| Keeper::new(Arc::clone(stock)))
            .collect();
        let informers = ClusterInformers {
            stocks,
            client: None,
        };
        (informers, Feed { keepers })
    }
}

impl Feed {
    /// What there was so far is all that there is: it can be read.
    pub fn synced<T: 'static>(&mut self) -> Result<(), FeedError> {
        let keeper = self.keeper::<T>()?;
        keeper.commit(None, None);
        keeper.publish();
        Ok(())
    }

    /// Takes a line of a watch, as an API server writes it: of an object that is there, or is gone.
    pub fn line<T: 'static>(&mut self, line: &[u8]) -> Result<(), FeedError> {
        let keeper = self.keeper::<T>()?;
        take(keeper, line)?;
        keeper.publish();
        Ok(())
    }

    /// Takes many, of which readers see all or none.
    pub fn lines<'l, T: 'static>(
        &mut self,
        lines: impl IntoIterator<Item = &'l [u8]>,
    ) -> Result<(), FeedError> {
        let keeper = self.keeper::<T>()?;
        let taken = lines.into_iter().try_for_each(|line| take(keeper, line));
        keeper.publish();
        taken
    }

    fn keeper<T: 'static>(&mut self) -> Result<&mut Keeper, FeedError> {
        let is = |keeper: &&mut Keeper| keeper.stock.kind.type_id == TypeId::of::<T>();
        let what = std::any::type_name::<T>();
        self.keepers
            .iter_mut()
            .find(is)
            .ok_or(FeedError::NotDeclared { what })
    }
}

fn take(keeper: &mut Keeper, line: &[u8]) -> Result<(), FeedError> {
    let (json, there) = match Line::read(line).map_err(no_event)? {
        Line::Changed(json) => (json, true),
        Line::Deleted(json) => (json, false),
        Line::Bookmark { .. } | Line::Error(_) => return Err(no_event("a bookmark, or an error")),
    };
    let object = keeper.read(json).map_err(no_event)?;
    let version = Version::of(&object.version);
    keeper.apply(&object, there, Some(&version));
    Ok(())
}

fn no_event(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FeedError {
    let source = source.into();
    FeedError::NoEvent { source }
}
