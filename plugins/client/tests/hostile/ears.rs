//! Listens to all that is logged by whatever crate, at TRACE, through `tracing` and through `log`; keeps what no log may have: a secret
//! of the corpus, or a control character.

use std::{
    cell::Cell,
    error::Error,
    fmt::{self, Write},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

use crate::canaries;

static FAULTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// How much is still listened to of those who log every frame: a flood is one for them too.
static PATIENCE: AtomicUsize = AtomicUsize::new(0);
const FRAMES: usize = 5_000;

/// Begins to listen, once in a process.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Ears).expect("nobody else listens");
        log::set_logger(&Ears).expect("nobody else listens");
        log::set_max_level(log::LevelFilter::Trace);
    });
    PATIENCE.store(FRAMES, Relaxed);
}

/// What was heard that no log may have.
pub(crate) fn faults() -> Vec<String> {
    std::mem::take(&mut *FAULTS.lock().unwrap_or_else(PoisonError::into_inner))
}

thread_local! {
    /// How many secrets this thread has logged, if it is asked for.
    static MINE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// How many secrets are logged by `what`.
pub(crate) fn heard_by_this_thread(what: impl FnOnce()) -> usize {
    MINE.set(Some(0));
    what();
    MINE.take().unwrap_or_default()
}

fn judge(target: &str, text: &str) {
    let secret = canaries::found_in(text);
    if let Some(count) = MINE.get() {
        MINE.set(Some(count + usize::from(secret.is_some())));
        return;
    }
    // What rustls prints of a message has lines of its own.
    let is_line = |letter| letter == '\n' && target.starts_with("rustls");
    let control = text
        .chars()
        .any(|letter| is_control(letter) && !is_line(letter));
    if secret.is_some() || control {
        let what = if secret.is_some() {
            "secret"
        } else {
            "control"
        };
        let text: String = text.chars().take(300).collect();
        let fault = format!("{what} logged by {target}: {}", text.escape_debug());
        FAULTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(fault);
    }
}

/// What makes a terminal or a page show something else than what is there.
pub(crate) fn is_control(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Something that people may see: it has no secret and no control character, but for the ends of lines of `{:#?}`.
#[track_caller]
pub(crate) fn shows(text: &str) {
    if let Some(form) = canaries::found_in(text) {
        panic!("{form} shows in {text}");
    }
    assert!(!text.replace('\n', "").chars().any(is_control), "{text:?}");
}

/// As [`shows`], an error with its sources.
#[track_caller]
pub(crate) fn tells(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    assert!(!text.contains('\n'), "{text:?}");
    let _ = write!(text, " {error:?} {error:#?}");
    let mut next = error.source();
    while let Some(source) = next {
        let _ = write!(text, " {source} {source:?}");
        next = source.source();
    }
    shows(&text);
    text
}

struct Ears;

/// Everything in an event or a span.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, "{}={value} ", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Ears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        if !(target.starts_with("h2") || target.starts_with("loona")) {
            return true;
        }
        let left = PATIENCE.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.is_ok()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        judge(span.metadata().target(), &text.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        judge("a span", &text.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        judge(event.metadata().target(), &text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl log::Log for Ears {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        judge(record.target(), &record.args().to_string());
    }

    fn flush(&self) {}
}
