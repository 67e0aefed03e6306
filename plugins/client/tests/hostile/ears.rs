//! Listens to all that is logged by whatever crate, at TRACE, through `tracing` and through `log`; keeps what no log may have: a secret
//! of the corpus, or a control character.

use std::{
    cell::Cell,
    error::Error,
    fmt::Write,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use clustercache_testkit::ears::{self, Listener};

use crate::canaries;

static FAULTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// How much is still listened to of those who log every frame: a flood is one for them too.
static PATIENCE: AtomicUsize = AtomicUsize::new(0);
const FRAMES: usize = 5_000;

/// Begins to listen, once in a process.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| ears::listen(&Judge));
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

/// Judges what is logged at once: there is too much of it to be kept.
struct Judge;

impl Listener for Judge {
    fn hear(&self, target: &str, text: &str) {
        judge(target, text);
    }

    fn wants(&self, target: &str) -> bool {
        if !(target.starts_with("h2") || target.starts_with("loona")) {
            return true;
        }
        let left = PATIENCE.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.is_ok()
    }
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
