//! The tasks of sources: each reads its stream, runs the filters, and starts again with backoff when the stream ends.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use futures_util::StreamExt;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::task::TaskTracker;

use crate::{
    ClusterKey, ClusterSource, SourceEvent, Upsert,
    hook::{self, Ended},
    latch::Latch,
    lifecycle::{backoff::Backoff, claims::Word},
    resource::{chain, escaped},
    shared::Shared,
};

/// Decides whether a cluster is ours.
pub(crate) type Filter = Arc<dyn Fn(&Upsert) -> bool + Send + Sync>;

/// A source as it was registered.
pub(crate) struct RegisteredSource {
    pub(crate) source: Arc<dyn ClusterSource>,
    pub(crate) name: Arc<str>,
    pub(crate) filters: Arc<[Filter]>,
}

/// The running sources, as the engine sees them.
pub(super) struct Sources {
    pub(super) words: mpsc::Receiver<(usize, Word)>,
    pub(super) names: Vec<Arc<str>>,
    rereads: Vec<Arc<Rereads>>,
    stop: Arc<Latch>,
    /// So that the engine does not read an end where there is no source.
    _words: mpsc::Sender<(usize, Word)>,
}

/// Keys whose access is to be read again: the newest state, not a queue.
#[derive(Default)]
struct Rereads {
    keys: Mutex<BTreeSet<ClusterKey>>,
    asked: Notify,
}

impl Sources {
    pub(super) fn spawn(
        sources: Vec<RegisteredSource>,
        shared: &Arc<Shared>,
        tasks: &TaskTracker,
        seed: Option<u64>,
    ) -> Self {
        let (sender, words) = mpsc::channel(super::TURN);
        let stop = Arc::new(Latch::default());
        let names = sources
            .iter()
            .map(|source| Arc::clone(&source.name))
            .collect();
        let rereads: Vec<Arc<Rereads>> = sources.iter().map(|_| Arc::default()).collect();
        for (index, (source, rereads)) in sources.into_iter().zip(&rereads).enumerate() {
            let task = SourceTask {
                index,
                source,
                shared: Arc::clone(shared),
                words: sender.clone(),
                rereads: Arc::clone(rereads),
                stop: Arc::clone(&stop),
                rng: seed.map_or_else(fastrand::Rng::new, |seed| {
                    fastrand::Rng::with_seed(seed ^ index as u64)
                }),
            };
            tasks.spawn(task.run());
        }
        Self {
            words,
            names,
            rereads,
            stop,
            _words: sender,
        }
    }

    pub(super) fn reread(&self, source: usize, key: &ClusterKey) {
        let Rereads { keys, asked } = &*self.rereads[source];
        keys.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone());
        asked.notify_one();
    }

    pub(super) fn stop(&self) {
        self.stop.set();
    }
}

struct SourceTask {
    index: usize,
    source: RegisteredSource,
    shared: Arc<Shared>,
    words: mpsc::Sender<(usize, Word)>,
    rereads: Arc<Rereads>,
    stop: Arc<Latch>,
    rng: fastrand::Rng,
}

impl SourceTask {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        while !self.stop.is_set() {
            let begun = Instant::now();
            let why = self.read().await;
            if begun.elapsed() >= self.shared.options.retry.forget_after {
                backoff.reset();
            }
            let wait = backoff.failed(&self.shared.options.retry, &mut self.rng, None);
            if backoff.failures() == 1 {
                tracing::warn!(source = %self.source.name, %why, "a source's stream ended; what it said stays until it has said more");
            } else {
                tracing::debug!(source = %self.source.name, %why, "a source's stream ended again");
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stop.wait() => return,
            }
        }
    }

    /// Reads one stream to its end, and says why it ended.
    async fn read(&self) -> Arc<str> {
        let (counters, who) = (&self.shared.counters, &*self.source.name);
        let mut stream = match hook::call(counters, who, || self.source.source.events()) {
            Ok(stream) => stream,
            Err(panic) => return escaped(&panic),
        };
        self.say(Word::Began).await;
        let why = loop {
            let stop = async {
                tokio::select! {
                    () = self.stop.wait() => {}
                    () = self.rereads.asked.notified() => {}
                }
            };
            match hook::run_task(counters, who, Box::pin(stream.next()), stop).await {
                Ended::Done(Some(Ok(event))) => {
                    self.say(self.word(event)).await;
                    // A stream that always has something to say lets neither be seen above.
                    if self.stop.is_set() {
                        break "the cache ends".into();
                    }
                    self.reread();
                }
                Ended::Done(Some(Err(error))) => {
                    // Its words, and its drop, are foreign code.
                    let words = hook::call(counters, who, move || chain(&*error));
                    break words.unwrap_or_else(|panic| escaped(&panic));
                }
                Ended::Done(None) => break "it ended".into(),
                Ended::Panicked(panic) => break escaped(&panic),
                Ended::Stopped if self.stop.is_set() => break "the cache ends".into(),
                Ended::Stopped => self.reread(),
            }
        };
        let _ = hook::call(counters, who, || drop(stream));
        why
    }

    fn reread(&self) {
        let keys = std::mem::take(
            &mut *self
                .rereads
                .keys
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for key in keys {
            let _ = hook::call(&self.shared.counters, &self.source.name, || {
                self.source.source.reread(&key);
            });
        }
    }

    fn word(&self, event: SourceEvent) -> Word {
        match event {
            SourceEvent::Upsert(upsert) => {
                let owned = self.source.filters.iter().all(|filter| {
                    // A filter that panics lets nothing in that it was not sure of.
                    hook::call(&self.shared.counters, &self.source.name, || filter(&upsert))
                        .unwrap_or(false)
                });
                Word::Upsert { upsert, owned }
            }
            SourceEvent::Remove { key, identity } => Word::Remove { key, identity },
            SourceEvent::Synced => Word::Synced,
        }
    }

    /// Tells the engine, and steps back before any code of the user's runs again. The engine that this has woken may stand next on this very
    /// thread, where no other can take it over: a filter or a stream that blocks now would hold up every cluster (rule 7).
    async fn say(&self, word: Word) {
        tokio::select! {
            _ = self.words.send((self.index, word)) => {}
            () = self.stop.wait() => return,
        }
        step_back().await;
    }
}

/// Lets run what is due on this thread. (Tokio's `yield_now` lets whoever is due anywhere run, also timers and sockets: too much for each word.)
async fn step_back() {
    let mut stepped = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
