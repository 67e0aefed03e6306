//! All that the process logs, down to TRACE, whoever does.

use std::{
    fmt::{Debug, Write},
    sync::{Mutex, PoisonError},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

static TEXT: Mutex<String> = Mutex::new(String::new());

/// From now on.
pub fn record() {
    let _ = tracing::subscriber::set_global_default(Recorder);
}

/// All of it so far.
pub fn text() -> String {
    let text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    text.clone()
}

struct Recorder;

struct Fields;

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
        write!(text, " {field}={value:?} {value:#?}").unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
