//! The loop of one kind in one cluster, with its I/O: asks what the machine wants asked, tells it what comes, does to the objects what it
//! says, and publishes what readers see.

use std::{
    error::Error,
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use clustercache::Resource;
use clustercache_client::{KubeClient, Part, TransportError};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::{
    ask,
    budget::{Budget, Turn},
    error::{Trouble, shortened},
    keeper::Keeper,
    line::{Line, Page, Status},
    lines::Lines,
    machine::{Failure, Heard, Machine, Request, Then, Way, Why},
    stock::{Standing, Stock},
    version::Version,
};

type Answer = Response<clustercache_client::AnswerBody>;

/// A list that says nothing for so long takes no turn of others.
const SILENT: Duration = Duration::from_secs(1);

/// What a page is taken for before it is there, in bytes.
const PAGE: usize = 1 << 20;

/// Objects that are decoded at a stretch, before others have their turn.
const STRETCH: usize = 64;

pub(crate) struct Informer {
    keeper: Keeper,
    client: Resource<KubeClient>,
    budget: Arc<Budget>,
    machine: Machine,
    turn: Option<Turn>,
    /// What the budget knows of.
    cached: usize,
}

/// What went wrong, for the machine and for people.
struct Wrong {
    failure: Failure,
    status: Option<u16>,
    message: String,
}

impl Informer {
    pub(crate) fn new(
        stock: Arc<Stock>,
        client: Resource<KubeClient>,
        budget: Arc<Budget>,
        machine: Machine,
    ) -> Self {
        let keeper = Keeper::new(stock);
        // What is taken over is there, whether there is room for it or not.
        let cached = keeper.bytes();
        budget.cache(0, cached);
        Self {
            keeper,
            client,
            budget,
            machine,
            turn: None,
            cached,
        }
    }

    /// For as long as the connection lives.
    pub(crate) async fn run(mut self) {
        loop {
            let now = Instant::now();
            if let Some(at) = self.machine.deadline().filter(|at| *at > now) {
                sleep_until(at).await;
            }
            if self.machine.is_listing() && self.turn.is_none() {
                self.turn = Some(self.budget.turn().await);
            }
            let now = Instant::now();
            if let Some(request) = self.machine.request(now) {
                self.ask(request).await;
                self.publish();
            }
        }
    }

    async fn ask(&mut self, request: Request) {
        let verb = verb(&request);
        let counts = &self.keeper.stock.counts;
        match &request {
            Request::Page { next: Some(_), .. } | Request::Check => (),
            Request::Page { .. } | Request::Stream { .. } => {
                counts.lists.fetch_add(1, Relaxed);
            }
            Request::Watch { .. } => {
                counts.watches.fetch_add(1, Relaxed);
            }
        }
        let answer = match self.answer(&request).await {
            Ok(answer) => answer,
            Err(wrong) if request == Request::Check => return self.unchecked(&wrong),
            Err(wrong) => return self.failed(verb, &wrong),
        };
        let now = Instant::now();
        self.keeper.stock.hear(now);
        let _ = self.machine.hear(now, Heard::Opened);
        let done = match request {
            Request::Page { .. } => self.page(answer).await,
            Request::Check => {
                if let Err(wrong) = self.check(answer).await {
                    self.unchecked(&wrong);
                }
                Ok(())
            }
            Request::Stream { .. } | Request::Watch { .. } => {
                if matches!(request, Request::Watch { .. }) {
                    self.keeper.resumed();
                    self.publish();
                }
                self.follow(answer).await
            }
        };
        if let Err(wrong) = done {
            self.failed(verb, &wrong);
        }
    }

    /// The head of an answer that is no refusal.
    async fn answer(&mut self, request: &Request) -> Result<Answer, Wrong> {
        let request =
            ask::of(&self.keeper.stock.kind.what, request).map_err(|error| Wrong::of(&error))?;
        let client = self.client.clone();
        // Boxed: it is large, and most of the time there is none.
        let mut sent = Box::pin(async move { client.send(request).await });
        let mut answer = None;
        if self.turn.is_some() {
            tokio::select! {
                biased;
                early = &mut sent => answer = Some(early),
                () = sleep(SILENT) => self.turn = None,
            }
        }
        let answer = match answer {
            Some(answer) => answer,
            None => sent.await,
        };
        let answer = answer.map_err(|error| Wrong::of_call(&error))?;
        if !answer.status().is_success() {
            return Err(refused(answer).await);
        }
        if self.machine.is_listing() && self.turn.is_none() {
            self.turn = Some(self.budget.turn().await);
        }
        Ok(answer)
    }

    async fn page(&mut self, answer: Answer) -> Result<(), Wrong> {
        let mut held = self.budget.hold(PAGE).await;
        let mut body = answer.into_body();
        let mut page = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Wrong::of_call(&error))?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            page.extend_from_slice(data);
            if !self.budget.hold_more(&mut held, page.len()) {
                return Err(Wrong {
                    failure: Failure::PageTooLarge,
                    ..Wrong::other("there is no room for its page among those of other lists")
                });
            }
        }
        let now = Instant::now();
        self.keeper.stock.hear(now);
        let page = Page::read(&page).map_err(|error| Wrong::of(&error))?;
        for (number, json) in (1..).zip(&page.items) {
            let object = self.keeper.read(json).map_err(|error| Wrong::of(&error))?;
            self.keeper.stage(&object, self.machine.trusts_versions());
            self.account()?;
            if number % STRETCH == 0 {
                tokio::task::yield_now().await;
            }
        }
        let heard = Heard::Page {
            version: page.version,
            next: page.next,
        };
        match self.machine.hear(now, heard) {
            Then::Commit => self.commit(),
            Then::Close(_) => return Err(Wrong::other("its list has no version to watch from")),
            Then::Nothing | Then::Stage | Then::Apply => (),
        }
        Ok(())
    }

    /// Whether versions went back.
    async fn check(&mut self, answer: Answer) -> Result<(), Wrong> {
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| Wrong::of(&error))?.to_bytes();
        let page = Page::read(&body).map_err(|error| Wrong::of(&error))?;
        let heard = Heard::Page {
            version: page.version,
            next: None,
        };
        match self.machine.hear(Instant::now(), heard) {
            Then::Close(why) => self.closed(why),
            _ => Ok(()),
        }
    }

    /// Whether versions went back is not known, which changes nothing.
    fn unchecked(&mut self, wrong: &Wrong) {
        let _ = self
            .machine
            .hear(Instant::now(), Heard::Failed(wrong.failure));
        let (cluster, resource) = (self.client.key().shown(), &self.keeper.stock.resource);
        tracing::debug!(%cluster, %resource, error = wrong.message, "its version could not be asked for");
    }

    /// The lines of a watch, until it ends.
    async fn follow(&mut self, answer: Answer) -> Result<(), Wrong> {
        let mut body = answer.into_body();
        let mut lines = Lines::default();
        loop {
            let next = body.frame();
            let frame = match self.machine.deadline() {
                Some(deadline) => timeout_at(deadline, next).await,
                None => Ok(next.await),
            };
            let now = Instant::now();
            let Ok(frame) = frame else {
                match self.machine.tick(now) {
                    Then::Close(why) => return self.closed(why),
                    _ => continue,
                }
            };
            let data = match frame {
                None => {
                    return match self.machine.hear(now, Heard::Ended) {
                        Then::Close(why) => self.closed(why),
                        _ => Ok(()),
                    };
                }
                Some(frame) => frame.map_err(|error| Wrong::of(&error))?.into_data(),
            };
            self.keeper.stock.hear(now);
            if let Ok(data) = data
                && self.lines(now, &mut lines, data)?.is_break()
            {
                return Ok(());
            }
            self.publish();
        }
    }

    fn lines(
        &mut self,
        now: Instant,
        lines: &mut Lines,
        data: Bytes,
    ) -> Result<ControlFlow<()>, Wrong> {
        lines.push(data);
        while let Some(line) = lines.next() {
            if self.line(now, &line)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn line(&mut self, now: Instant, line: &[u8]) -> Result<ControlFlow<()>, Wrong> {
        let line = Line::read(line).map_err(|error| Wrong::of(&error))?;
        let (json, there) = match line {
            Line::Changed(json) => (json, true),
            Line::Deleted(json) => (json, false),
            Line::Bookmark {
                version,
                ends_initial,
            } => {
                return self.bookmark(
                    now,
                    Heard::Bookmark {
                        version,
                        ends_initial,
                    },
                );
            }
            Line::Error(status) => return Err(Wrong::refused(&status, None)),
        };
        self.keeper.stock.counts.events.fetch_add(1, Relaxed);
        let object = self.keeper.read(json).map_err(|error| Wrong::of(&error))?;
        let version = Version::of(&object.version);
        match self.machine.hear(now, Heard::Object(version)) {
            Then::Stage => {
                if there {
                    self.keeper.stage(&object, self.machine.trusts_versions());
                } else {
                    self.keeper.stage_deletion(&object);
                }
                self.account()?;
            }
            Then::Apply => {
                self.keeper.apply(&object, there, self.machine.version());
                self.account()?;
            }
            Then::Close(why) => {
                self.closed(why)?;
                return Ok(ControlFlow::Break(()));
            }
            Then::Nothing | Then::Commit => (),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn bookmark(&mut self, now: Instant, bookmark: Heard) -> Result<ControlFlow<()>, Wrong> {
        match self.machine.hear(now, bookmark) {
            Then::Commit => self.commit(),
            Then::Close(why) => {
                self.closed(why)?;
                return Ok(ControlFlow::Break(()));
            }
            _ => {
                let generation = Some(self.client.generation());
                self.keeper.known_to(self.machine.version(), generation);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The list is complete.
    fn commit(&mut self) {
        let generation = Some(self.client.generation());
        self.keeper.commit(self.machine.version(), generation);
        self.turn = None;
    }

    /// What is cached, on the budget.
    fn account(&mut self) -> Result<(), Wrong> {
        let bytes = self.keeper.bytes();
        let room = self.budget.cache(self.cached, bytes);
        self.cached = bytes;
        if room {
            return Ok(());
        }
        Err(Wrong {
            failure: Failure::OverBudget,
            ..Wrong::other("over the budget of cached bytes")
        })
    }

    /// The machine has ended the request.
    fn closed(&mut self, why: Why) -> Result<(), Wrong> {
        self.keeper.forget_list();
        self.turn = None;
        self.note_end(why);
        // One that ended in its time is no trouble.
        if matches!(why, Why::Ended) && self.machine.failures() > 0 {
            let trouble =
                self.trouble("watch", None, "the server ends it soon after its beginning");
            self.keeper.troubled(trouble, None);
        }
        self.account()
    }

    fn note_end(&self, why: Why) {
        let (cluster, resource) = (self.client.key().shown(), &self.keeper.stock.resource);
        tracing::debug!(%cluster, %resource, ?why, "a list or watch is over");
    }

    fn failed(&mut self, verb: &'static str, wrong: &Wrong) {
        let Wrong {
            failure,
            status,
            message,
        } = wrong;
        let _ = self.machine.hear(Instant::now(), Heard::Failed(*failure));
        self.keeper.forget_list();
        self.turn = None;
        let trouble = self.trouble(verb, *status, message);
        self.note_trouble(&trouble);
        let standing = match failure {
            Failure::Forbidden | Failure::Missing => Some(Standing::Refused),
            Failure::OverBudget => {
                self.keeper.clear();
                Some(Standing::OverBudget)
            }
            _ => None,
        };
        self.keeper.troubled(trouble, standing);
        // What was staged is not there any more; less has always room.
        let _ = self.account();
    }

    fn note_trouble(&self, trouble: &Trouble) {
        let (cluster, failures) = (self.client.key().shown(), trouble.failures);
        // What is below HTTP concerns the cluster, which says so itself.
        if failures == 1 && trouble.status.is_some() {
            tracing::info!(%cluster, %trouble, "an informer fails");
        } else {
            tracing::debug!(%cluster, %trouble, failures, "an informer fails");
        }
    }

    fn trouble(&self, verb: &'static str, status: Option<u16>, message: &str) -> Trouble {
        Trouble {
            verb,
            resource: Arc::clone(&self.keeper.stock.resource),
            status,
            message: message.into(),
            failures: self.machine.failures().max(1),
        }
    }

    fn publish(&mut self) {
        let pages = self.machine.way() == Way::Pages;
        self.keeper.stock.pages.store(pages, Relaxed);
        self.keeper.publish();
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        self.budget.cache(self.cached, 0);
        self.keeper.stock.retire();
    }
}

fn verb(request: &Request) -> &'static str {
    match request {
        Request::Page { .. } | Request::Check => "list",
        Request::Stream { .. } | Request::Watch { .. } => "watch",
    }
}

/// Why a server refuses, in its words.
async fn refused(answer: Answer) -> Wrong {
    let status = answer.status();
    let told = retry_after(answer.headers());
    // It has the deadline of its call, and a limit.
    let body = match answer.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Wrong::of(&error),
    };
    Wrong::refused(&Status::of(status.as_u16(), &body), told)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

impl Wrong {
    fn other(message: &str) -> Self {
        Self {
            failure: Failure::Other,
            status: None,
            message: message.into(),
        }
    }

    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(source) = next {
            let more = source.to_string();
            if !text.contains(&more) {
                text.extend([": ", &more]);
            }
            next = source.source();
        }
        Self::other(&shortened(&text))
    }

    /// A page beyond the client's limit is as one for which there is no room.
    fn of_call(error: &kube::Error) -> Self {
        let wrong = Self::of(error);
        let kube::Error::Service(below) = error else {
            return wrong;
        };
        match below.downcast_ref() {
            Some(TransportError::TooLarge {
                what: Part::List, ..
            }) => Self {
                failure: Failure::PageTooLarge,
                ..wrong
            },
            _ => wrong,
        }
    }

    fn refused(status: &Status, told: Option<Duration>) -> Self {
        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let failure = match code {
            _ if status.is_expired() => Failure::Expired,
            _ if status.is_too_large() => Failure::TooLarge,
            StatusCode::TOO_MANY_REQUESTS => Failure::Busy(told.or(status.retry_after())),
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Failure::Invalid,
            StatusCode::FORBIDDEN => Failure::Forbidden,
            StatusCode::NOT_FOUND => Failure::Missing,
            _ => Failure::Other,
        };
        let said = match &*status.message {
            "" => code.canonical_reason().unwrap_or("no reason was given"),
            message => message,
        };
        Self {
            failure,
            status: Some(status.code),
            message: shortened(said),
        }
    }
}
