//! As much of SPDY/3.1 as clients of Kubernetes speak: streams that they open, their bytes, and pings. Nobody of them counts windows.

use std::{collections::HashMap, sync::LazyLock};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// The flag of the last frame of a stream, in one direction.
const FIN: u8 = 1;
/// The stream is one that the server will not have.
const REFUSED: u32 = 3;
/// Bytes before each payload.
const HEAD: usize = 8;
/// Headers of a stream are a few words.
const HEADERS_LIMIT: usize = 64 << 10;

/// What both sides know before the first header, as the protocol has it: words with their lengths, and a text.
static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for word in WORDS.split('|') {
        let length = u32::try_from(word.len()).unwrap_or_default();
        all.extend_from_slice(&length.to_be_bytes());
        all.extend_from_slice(word.as_bytes());
    }
    all.extend_from_slice(TEXT.as_bytes());
    all
});

const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|accept-ranges|age|allow|\
authorization|cache-control|connection|content-base|content-encoding|content-language|content-length|content-location|content-md5|\
content-range|content-type|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|\
last-modified|location|max-forwards|pragma|proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|trailer|\
transfer-encoding|upgrade|user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-cookie|\
keep-alive|origin";

const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal \
Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, \
Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,\
publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// What a client sent.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// A stream begins. The names of headers are in lower case.
    Open {
        stream: u32,
        headers: HashMap<String, String>,
    },
    Data {
        stream: u32,
        bytes: Bytes,
        end: bool,
    },
    Reset {
        stream: u32,
    },
    Ping {
        id: u32,
    },
    /// The client leaves.
    Leave,
    /// What changes nothing here.
    Other,
}

/// What came is no SPDY.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

/// Frames out of bytes as they come.
pub(super) struct Decoder {
    bytes: BytesMut,
    headers: Decompress,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            bytes: BytesMut::new(),
            headers: Decompress::new(true),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if it is whole.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        let Some(head) = self.bytes.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [.., flags, high, middle, low] = *head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if self.bytes.len() < HEAD + length {
            return Ok(None);
        }
        let mut head = self.bytes.split_to(HEAD);
        let mut payload = self.bytes.split_to(length).freeze();
        if head[0] & 0x80 == 0 {
            return Ok(Some(Frame::Data {
                stream: head.get_u32(),
                bytes: payload,
                end: flags & FIN != 0,
            }));
        }
        if head.get_u16() & 0x7fff != VERSION {
            return Err(Malformed);
        }
        let kind = head.get_u16();
        let mut number = || payload.try_get_u32().map_err(|_| Malformed);
        Ok(Some(match kind {
            SYN_STREAM => {
                let stream = number()? & 0x7fff_ffff;
                // What it belongs to, its priority and its slot.
                payload.try_get_u32().map_err(|_| Malformed)?;
                payload.try_get_u16().map_err(|_| Malformed)?;
                let headers = self.headers(&payload)?;
                Frame::Open { stream, headers }
            }
            RST_STREAM => Frame::Reset {
                stream: number()? & 0x7fff_ffff,
            },
            PING => Frame::Ping { id: number()? },
            GOAWAY => Frame::Leave,
            _ => Frame::Other,
        }))
    }

    /// Headers are one compressed stream over all frames.
    fn headers(&mut self, mut compressed: &[u8]) -> Result<HashMap<String, String>, Malformed> {
        let mut plain = Vec::with_capacity(1 << 10);
        while !compressed.is_empty() || plain.len() == plain.capacity() {
            if plain.len() > HEADERS_LIMIT {
                return Err(Malformed);
            }
            plain.reserve(1);
            let before = (self.headers.total_in(), plain.len());
            let inflated =
                self.headers
                    .decompress_vec(compressed, &mut plain, FlushDecompress::Sync);
            let read = usize::try_from(self.headers.total_in() - before.0).unwrap_or_default();
            compressed = compressed.get(read..).unwrap_or_default();
            match inflated {
                Err(error) if error.needs_dictionary().is_some() => {
                    let known = self.headers.set_dictionary(&DICTIONARY);
                    known.map_err(|_| Malformed)?;
                }
                Err(_) => return Err(Malformed),
                // It has come to a stand.
                Ok(_) if read == 0 && plain.len() == before.1 => break,
                Ok(_) => {}
            }
        }
        pairs(&plain)
    }
}

fn pairs(mut plain: &[u8]) -> Result<HashMap<String, String>, Malformed> {
    let number = |plain: &mut &[u8]| plain.try_get_u32().map_err(|_| Malformed);
    let text = |plain: &mut &[u8]| {
        let length = usize::try_from(number(plain)?).map_err(|_| Malformed)?;
        let text = plain.split_off(..length).ok_or(Malformed)?;
        Ok(String::from_utf8_lossy(text).into_owned())
    };
    let count = plain.try_get_u32().map_err(|_| Malformed)?;
    (0..count)
        .map(|_| Ok((text(&mut plain)?, text(&mut plain)?)))
        .collect()
}

/// The headers of answers, which have none: one compressed stream, too.
pub(super) struct Replies(Compress);

impl Replies {
    pub(super) fn new() -> Result<Self, Malformed> {
        let mut headers = Compress::new(Compression::default(), true);
        headers.set_dictionary(&DICTIONARY).map_err(|_| Malformed)?;
        Ok(Self(headers))
    }

    /// A stream is taken.
    pub(super) fn taken(&mut self, stream: u32) -> Result<Bytes, Malformed> {
        let mut headers = Vec::with_capacity(64);
        let none = 0_u32.to_be_bytes();
        let flush = FlushCompress::Sync;
        self.0
            .compress_vec(&none, &mut headers, flush)
            .map_err(|_| Malformed)?;
        let mut payload = BytesMut::new();
        payload.put_u32(stream);
        payload.put_slice(&headers);
        Ok(control(SYN_REPLY, &payload))
    }
}

/// A stream is not taken.
pub(super) fn refused(stream: u32) -> Bytes {
    let mut payload = BytesMut::new();
    payload.put_u32(stream);
    payload.put_u32(REFUSED);
    control(RST_STREAM, &payload)
}

/// The answer to a ping.
pub(super) fn pong(id: u32) -> Bytes {
    control(PING, &id.to_be_bytes())
}

/// Bytes of a stream; `end` if they are its last.
pub(super) fn data(stream: u32, bytes: &[u8], end: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + bytes.len());
    frame.put_u32(stream);
    finish(frame, if end { FIN } else { 0 }, bytes)
}

fn control(kind: u16, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + payload.len());
    frame.put_u16(0x8000 | VERSION);
    frame.put_u16(kind);
    finish(frame, 0, payload)
}

fn finish(mut frame: BytesMut, flags: u8, payload: &[u8]) -> Bytes {
    frame.put_u8(flags);
    frame.put_uint(payload.len() as u64, 3);
    frame.put_slice(payload);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(compressor: &mut Compress, stream: u32, headers: &[(&str, &str)]) -> Bytes {
        let mut plain = BytesMut::new();
        plain.put_u32(u32::try_from(headers.len()).unwrap());
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(u32::try_from(text.len()).unwrap());
            plain.put_slice(text.as_bytes());
        }
        let mut compressed = Vec::with_capacity(4096);
        compressor
            .compress_vec(&plain, &mut compressed, FlushCompress::Sync)
            .unwrap();
        let mut payload = BytesMut::new();
        payload.put_u32(stream);
        payload.put_bytes(0, 6);
        payload.put_slice(&compressed);
        control(SYN_STREAM, &payload)
    }

    #[test]
    fn frames_are_read_wherever_they_are_cut() {
        let mut compressor = Compress::new(Compression::best(), true);
        compressor.set_dictionary(&DICTIONARY).unwrap();
        let (long, many) = ("x".repeat(5000), [("streamtype", "data"), ("port", "80")]);
        let sent = [
            opened(&mut compressor, 1, &many),
            data(1, b"hello", false),
            pong(7),
            // The second is compressed with what the first said.
            opened(&mut compressor, 3, &[("port", "80"), ("requestid", &long)]),
            data(1, b"", true),
            refused(3),
            control(GOAWAY, &[0; 8]),
        ]
        .concat();
        let map = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            owned.collect::<HashMap<_, _>>()
        };
        let wanted = [
            Frame::Open {
                stream: 1,
                headers: map(&many),
            },
            Frame::Data {
                stream: 1,
                bytes: "hello".into(),
                end: false,
            },
            Frame::Ping { id: 7 },
            Frame::Open {
                stream: 3,
                headers: map(&[("port", "80"), ("requestid", &long)]),
            },
            Frame::Data {
                stream: 1,
                bytes: Bytes::new(),
                end: true,
            },
            Frame::Reset { stream: 3 },
            Frame::Leave,
        ];
        for size in [1, 7, sent.len()] {
            let mut decoder = Decoder::new();
            let mut seen = Vec::new();
            for chunk in sent.chunks(size) {
                decoder.push(chunk);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, wanted);
        }
    }

    #[test]
    fn what_is_no_spdy_is_refused() {
        let mut decoder = Decoder::new();
        decoder.push(b"\x80\x02\0\x01\0\0\0\0");
        assert_eq!(decoder.next(), Err(Malformed));
        decoder = Decoder::new();
        decoder.push(&control(SYN_STREAM, b"0123456789no zlib"));
        assert_eq!(decoder.next(), Err(Malformed));
        // Headers that inflate without end.
        let mut compressor = Compress::new(Compression::best(), true);
        compressor.set_dictionary(&DICTIONARY).unwrap();
        decoder = Decoder::new();
        decoder.push(&opened(&mut compressor, 1, &[("x", &"x".repeat(1 << 20))]));
        assert_eq!(decoder.next(), Err(Malformed));
    }
}
