//! HTTP/2 by hand: frames as bytes, for [`Step::Write`](super::Step::Write) and [`Step::Repeat`](super::Step::Repeat).
//!
//! ```
//! use clustercache_testkit::hostile::{Answer, Behaviour, Step, http2};
//!
//! // Every answer comes with a GOAWAY, and lists with a flood of resets.
//! let behaviour = Behaviour::http2()
//!     .on_each("/api/", |seen| vec![Step::for_ever(http2::rst_stream(seen.stream, http2::CANCEL))])
//!     .on_each("/", |seen| {
//!         vec![
//!             Step::Write(http2::goaway(seen.stream, http2::NO_ERROR)),
//!             Step::Answer(Answer::new(200).body("ok")),
//!         ]
//!     });
//! # let _ = behaviour;
//! ```

pub(super) mod frames;
mod serve;
mod windows;

pub use self::frames::{
    CANCEL, CONTINUATION, DATA, ENHANCE_YOUR_CALM, GOAWAY, HEADER_TABLE_SIZE, HEADERS,
    INITIAL_WINDOW_SIZE, INTERNAL_ERROR, MAX_CONCURRENT_STREAMS, MAX_FRAME_SIZE, NO_ERROR, PING,
    REFUSED_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, data, frame, goaway, header_block,
    headers, ping, rst_stream, settings, window_update,
};
pub(super) use self::{serve::serve, windows::Windows};
