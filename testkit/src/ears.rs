//! Ears for all that a process logs, by whatever crate, at TRACE, through `tracing` and through `log`: so that a test can tell that something
//! is in no log.

use std::fmt::{self, Write};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

/// Who is told what is logged.
pub trait Listener: Send + Sync + 'static {
    /// A text: an event, a record, or the fields of a span, each field as `name=value`; and the target that logs it.
    fn hear(&self, target: &str, text: &str);

    /// Whether what this target logs through `tracing` is told at all: a flood of events is one for a listener too.
    fn wants(&self, target: &str) -> bool {
        let _ = target;
        true
    }
}

/// Begins to listen, for the rest of the process.
///
/// ```
/// use std::sync::Mutex;
///
/// struct Heard(Mutex<Vec<String>>);
///
/// impl clustercache_testkit::ears::Listener for Heard {
///     fn hear(&self, target: &str, text: &str) {
///         self.0.lock().unwrap().push(format!("{target}: {text}"));
///     }
/// }
///
/// static HEARD: Heard = Heard(Mutex::new(Vec::new()));
/// clustercache_testkit::ears::listen(&HEARD);
/// tracing::trace!(target: "a", token = "secret");
/// assert_eq!(*HEARD.0.lock().unwrap(), ["a: token=secret "]);
/// ```
///
/// # Panics
/// If somebody listens already.
pub fn listen(listener: &'static dyn Listener) {
    tracing::subscriber::set_global_default(Ears(listener))
        .expect("nobody else listens to tracing");
    // For ever, as it says.
    log::set_logger(Box::leak(Box::new(Ears(listener)))).expect("nobody else listens to log");
    log::set_max_level(log::LevelFilter::Trace);
}

struct Ears(&'static dyn Listener);

/// Everything in an event or a span.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, "{field}={value} ");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Ears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.wants(metadata.target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        self.0.hear(span.metadata().target(), &text.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        self.0.hear("a span", &text.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.hear(event.metadata().target(), &text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl log::Log for Ears {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.hear(record.target(), &record.args().to_string());
    }

    fn flush(&self) {}
}
