//! What a client lets a server send: on all of its connection, and on each stream.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::player::Over;
use super::frames::LARGEST;

/// What both sides begin with, in bytes.
const FIRST: i64 = 65_535;

pub(in super::super) struct Windows {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    initial: i64,
    connection: i64,
    /// Of streams that are open.
    streams: HashMap<u32, i64>,
}

impl Default for Windows {
    fn default() -> Self {
        let state = State {
            initial: FIRST,
            connection: FIRST,
            streams: HashMap::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }
}

impl Windows {
    pub(super) fn open(&self, stream: u32) {
        let mut state = self.state.lock();
        let initial = state.initial;
        state.streams.insert(stream, initial);
    }

    /// The client has reset it.
    pub(super) fn close(&self, stream: u32) {
        self.state.lock().streams.remove(&stream);
        self.changed.notify_waiters();
    }

    /// The client's setting for new streams, which counts for those that are open too.
    pub(super) fn initial(&self, size: u32) {
        let mut state = self.state.lock();
        let more = i64::from(size) - state.initial;
        state.initial += more;
        for window in state.streams.values_mut() {
            *window += more;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn more(&self, stream: u32, more: u32) {
        let mut state = self.state.lock();
        if stream == 0 {
            state.connection += i64::from(more);
        } else if let Some(window) = state.streams.get_mut(&stream) {
            *window += i64::from(more);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Takes room for some of `wanted` bytes, at most a frame's. Waits for it; a stream that is gone gets none.
    pub(in super::super) async fn take(&self, stream: u32, wanted: usize) -> Result<usize, Over> {
        loop {
            // Before the look, so that no change between the two is missed.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(room) = self.state.lock().take(stream, wanted)? {
                return Ok(room);
            }
            changed.await;
        }
    }
}

impl State {
    fn take(&mut self, stream: u32, wanted: usize) -> Result<Option<usize>, Over> {
        let window = self.streams.get_mut(&stream).ok_or(Over)?;
        let room = self.connection.min(*window).min(i64::from(LARGEST));
        let room = usize::try_from(room).unwrap_or(0).min(wanted);
        if room == 0 {
            return Ok(None);
        }
        let taken = i64::try_from(room).expect("at most a frame");
        *window -= taken;
        self.connection -= taken;
        Ok(Some(room))
    }
}
