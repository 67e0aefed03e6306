//! The frames of HTTP/2 (RFC 9113), and headers as literals (RFC 7541).

use bytes::{BufMut, Bytes, BytesMut};

/// The type of frames that carry a body.
pub const DATA: u8 = 0;
/// The type of frames that begin a header block.
pub const HEADERS: u8 = 1;
/// The type of frames that end one stream.
pub const RST_STREAM: u8 = 3;
/// The type of settings and of their acknowledgement.
pub const SETTINGS: u8 = 4;
/// The type of pings and of their answers.
pub const PING: u8 = 6;
/// The type of frames that end a connection for new streams.
pub const GOAWAY: u8 = 7;
/// The type of frames that let more come.
pub const WINDOW_UPDATE: u8 = 8;
/// The type of frames that go on with a header block.
pub const CONTINUATION: u8 = 9;

/// A setting: the size of the other side's table of headers.
pub const HEADER_TABLE_SIZE: u16 = 1;
/// A setting: the most streams at once.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// A setting: what may be sent on a new stream.
pub const INITIAL_WINDOW_SIZE: u16 = 4;
/// A setting: the largest frame.
pub const MAX_FRAME_SIZE: u16 = 5;

/// A reason: none.
pub const NO_ERROR: u32 = 0;
/// A reason: a fault of its own.
pub const INTERNAL_ERROR: u32 = 2;
/// A reason: the stream was not looked at.
pub const REFUSED_STREAM: u32 = 7;
/// A reason: nobody wants it any more.
pub const CANCEL: u32 = 8;
/// A reason: the other side is too busy.
pub const ENHANCE_YOUR_CALM: u32 = 11;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const PRIORITY: u8 = 32;

/// What every client takes in one frame.
pub(super) const LARGEST: u16 = 16 << 10;

/// Any frame at all. A payload of more than 16 MiB is cut.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Bytes {
    let payload = &payload[..payload.len().min(0xff_ffff)];
    let mut out = BytesMut::with_capacity(9 + payload.len());
    out.put_uint(payload.len() as u64, 3);
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u32(stream);
    out.put_slice(payload);
    out.freeze()
}

/// Settings, each an identifier and a value.
pub fn settings(settings: &[(u16, u32)]) -> Bytes {
    let mut payload = BytesMut::new();
    for (setting, value) in settings {
        payload.put_u16(*setting);
        payload.put_u32(*value);
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// A ping, which wants an answer.
pub fn ping(payload: [u8; 8]) -> Bytes {
    frame(PING, 0, 0, &payload)
}

/// The end of the connection for streams above `last`, for a reason.
pub fn goaway(last: u32, reason: u32) -> Bytes {
    let mut payload = BytesMut::new();
    payload.put_u32(last);
    payload.put_u32(reason);
    frame(GOAWAY, 0, 0, &payload)
}

/// The end of one stream, for a reason.
pub fn rst_stream(stream: u32, reason: u32) -> Bytes {
    frame(RST_STREAM, 0, stream, &reason.to_be_bytes())
}

/// More may come, on a stream or, with 0, on the connection.
pub fn window_update(stream: u32, more: u32) -> Bytes {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// Bytes of a body in one frame; `last` ends the stream.
pub fn data(stream: u32, bytes: &[u8], last: bool) -> Bytes {
    frame(DATA, if last { END_STREAM } else { 0 }, stream, bytes)
}

/// The head of an answer, in as many frames as it takes; `last` ends the stream.
pub fn headers<'a>(
    stream: u32,
    status: u16,
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    last: bool,
) -> Bytes {
    let status = status.to_string();
    let first = header_block([(":status", status.as_bytes())]);
    block(stream, &[first, header_block(headers)].concat(), last)
}

/// A header block that is given as bytes, in as many frames as it takes; `last` ends the stream.
pub fn block(stream: u32, block: &[u8], last: bool) -> Bytes {
    let mut parts = block.chunks(LARGEST.into()).peekable();
    let first = parts.next().unwrap_or_default();
    let ends = |more: bool| if more { 0 } else { END_HEADERS };
    let flags = if last { END_STREAM } else { 0 };
    let flags = flags | ends(parts.peek().is_some());
    let mut out = BytesMut::from(&frame(HEADERS, flags, stream, first)[..]);
    while let Some(part) = parts.next() {
        let flags = ends(parts.peek().is_some());
        out.extend_from_slice(&frame(CONTINUATION, flags, stream, part));
    }
    out.freeze()
}

/// Headers as literals that no table keeps; names as they are, also wrong ones.
pub fn header_block<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Bytes {
    let mut out = BytesMut::new();
    for (name, value) in headers {
        out.put_u8(0);
        for text in [name.as_bytes(), value] {
            put_length(&mut out, text.len());
            out.put_slice(text);
        }
    }
    out.freeze()
}

/// An integer with a prefix of seven bits; the bit above it says that what follows is not Huffman's.
fn put_length(out: &mut BytesMut, length: usize) {
    const PREFIX: usize = 0x7f;
    let Some(mut rest) = length.checked_sub(PREFIX) else {
        return out.put_u8(low(length));
    };
    out.put_u8(low(PREFIX));
    while rest > 0x7f {
        out.put_u8(low(rest) | 0x80);
        rest >>= 7;
    }
    out.put_u8(low(rest));
}

/// The lowest seven bits.
fn low(number: usize) -> u8 {
    u8::try_from(number & 0x7f).expect("seven bits fit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_such_by_another_hand() {
        for length in [0, 1, 126, 127, 128, 254, 255, 256, 20_000] {
            let value = "v".repeat(length);
            let bytes = header_block([("x-name", value.as_bytes())]);
            let read = loona_hpack::Decoder::new().decode(&bytes).unwrap();
            assert_eq!(read, [(b"x-name".to_vec(), value.into_bytes())]);
        }
    }

    #[test]
    fn a_block_that_is_too_large_goes_on_in_continuations() {
        let largest = usize::from(LARGEST);
        let bytes = block(3, &vec![7; 2 * largest + 1], true);
        let heads = [0, 9 + largest, 2 * (9 + largest)].map(|at| &bytes[at..at + 9]);
        assert_eq!(heads[0], [0, 0x40, 0, HEADERS, END_STREAM, 0, 0, 0, 3]);
        assert_eq!(heads[1], [0, 0x40, 0, CONTINUATION, 0, 0, 0, 0, 3]);
        assert_eq!(heads[2], [0, 0, 1, CONTINUATION, END_HEADERS, 0, 0, 0, 3]);
    }
}
