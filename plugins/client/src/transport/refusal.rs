//! What a server refuses with, made fit to be shown: whoever gets it prints it, and `kube::Client` logs it. It is another party's text, and
//! a proxy that refuses may repeat what it was sent, our token with it (rules 18 and 19).

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::{Identity, Transport, body::ResponseBody, echo::Echo, error::TransportError};

/// The most of one text, in letters; messages of admission webhooks are long.
const MOST: usize = 4_096;
/// A longer one is not read as JSON, which takes a hundred times its size if its author wants that; it is one text.
const READ: usize = 64 << 10;

/// To what a refusal answers: it goes with the answer until that has been made plain.
#[derive(Clone)]
pub(super) struct Asked {
    /// As whom.
    pub(super) identity: Arc<Identity>,
    /// For something else than text, which is read by whoever asked for it.
    pub(super) raw: bool,
}

impl Transport {
    /// An answer as it is; a refusal with each of its texts on one line, cut, and without our token.
    pub(crate) async fn plain(
        &self,
        mut answer: Response<ResponseBody>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let status = answer.status();
        let asked = answer.extensions_mut().remove::<Asked>();
        let raw = asked.as_ref().is_some_and(|asked| asked.raw);
        if raw || !(status.is_client_error() || status.is_server_error()) {
            return Ok(answer);
        }
        let (mut parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        // A credential that is newer than the request is not what the answer repeats.
        let identity = asked.map(|asked| asked.identity);
        let identity = identity.unwrap_or_else(|| self.0.identity.load_full());
        let body = Bytes::from(plain(&body, &identity.echo()));
        parts
            .headers
            .insert(header::CONTENT_LENGTH, body.len().into());
        parts.headers.remove(header::TRANSFER_ENCODING);
        parts.headers.remove(header::CONTENT_ENCODING);
        Ok(Response::from_parts(parts, ResponseBody::said(body)))
    }
}

impl Identity {
    fn echo(&self) -> Echo {
        let token = self.access.credential().token();
        Echo::of(token.map(ExposeSecret::expose_secret))
    }

    /// What a server says, without our token.
    pub(super) fn hidden<'a>(&self, said: &'a str) -> Cow<'a, str> {
        self.echo().hidden(said)
    }
}

/// Who asks a server for what is shown: the answer may repeat a token.
pub(crate) struct Asker<'a> {
    transport: &'a Transport,
    /// As it was before it was asked.
    identity: Arc<Identity>,
}

impl Transport {
    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker {
            transport: self,
            identity: self.0.identity.load_full(),
        }
    }
}

impl Asker<'_> {
    /// What a server says, without the token that we had or have.
    pub(crate) fn hidden(&self, said: &str) -> String {
        let said = self.identity.hidden(said);
        let now = self.transport.0.identity.load();
        now.hidden(&said).into_owned()
    }
}

/// Whoever asks for an encoding, or for protobuf, reads that.
pub(super) fn is_raw(asked: &HeaderMap) -> bool {
    let protobuf = |kind: &HeaderValue| {
        let kind = kind.as_bytes();
        kind.windows(8)
            .any(|part| part.eq_ignore_ascii_case(b"protobuf"))
    };
    decodes(asked) || asked.get_all(header::ACCEPT).iter().any(protobuf)
}

impl Identity {
    /// Heads of an answer that repeat our token are not to be printed: kube logs those of each watch.
    pub(super) fn mark(&self, heads: &mut HeaderMap) {
        let echo = self.echo();
        for value in heads.values_mut() {
            let repeats = echo.is_in(&String::from_utf8_lossy(value.as_bytes()));
            value.set_sensitive(repeats || value.is_sensitive());
        }
    }
}

/// Whether a request asks for an encoding; that it wants none says kube of each watch.
pub(super) fn decodes(asked: &HeaderMap) -> bool {
    let encodings = asked.get_all(header::ACCEPT_ENCODING);
    encodings
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn plain(body: &[u8], echo: &Echo) -> Vec<u8> {
    if body.len() > READ {
        return word(&String::from_utf8_lossy(&body[..READ]), echo).into_bytes();
    }
    let text = String::from_utf8_lossy(body);
    match serde_json::from_str(&text) {
        Ok(mut value) => {
            make_plain(&mut value, echo);
            value.to_string()
        }
        Err(_) => word(&text, echo),
    }
    .into_bytes()
}

fn make_plain(value: &mut Value, echo: &Echo) {
    match value {
        Value::String(text) => *text = word(text, echo),
        Value::Array(values) => values.iter_mut().for_each(|value| make_plain(value, echo)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            fields.extend(old.into_iter().map(|(name, mut value)| {
                make_plain(&mut value, echo);
                (word(&name, echo), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

fn word(text: &str, echo: &Echo) -> String {
    let text = echo.hidden(text);
    let mut out = String::with_capacity(text.len().min(MOST));
    for (number, letter) in text.chars().enumerate() {
        if number == MOST {
            out.push('…');
            break;
        }
        let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if letter.is_control() || turns {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> String {
        String::from_utf8(plain(body.as_bytes(), &Echo::of(Some("s3cret")))).unwrap()
    }

    #[test]
    fn only_who_asks_for_it_gets_what_is_not_text() {
        let raw = |name: header::HeaderName, value: &'static str| {
            is_raw(&HeaderMap::from_iter([(
                name,
                HeaderValue::from_static(value),
            )]))
        };
        assert!(raw(header::ACCEPT, "application/vnd.kubernetes.protobuf"));
        assert!(raw(header::ACCEPT_ENCODING, "gzip"));
        assert!(!raw(header::ACCEPT, "application/json"));
        assert!(!raw(header::ACCEPT_ENCODING, "identity"));
    }

    #[test]
    fn what_is_proper_stays_as_it_is() {
        let status = r#"{"apiVersion":"v1","code":403,"details":{"causes":[{"field":"a"}]},"kind":"Status"}"#;
        assert_eq!(said(status), status);
        assert_eq!(said("<html>no: ü</html>"), "<html>no: ü</html>");
        assert_eq!(said(""), "");
    }

    #[test]
    fn texts_are_on_one_line_and_without_the_token_wherever_they_are() {
        let status = r#"{"message":"\u001b[2J s3cret","s3cret\n":["\u202e"]}"#;
        assert_eq!(
            said(status),
            r#"{"[our token]\\n":["\\u{202e}"],"message":"\\u{1b}[2J [our token]"}"#
        );
        assert_eq!(
            said("\u{1b}\r\nBearer s3cret"),
            "\\u{1b}\\r\\nBearer [our token]"
        );
    }

    #[test]
    fn what_is_long_or_deep_is_cut() {
        assert_eq!(said(&"x".repeat(MOST + 1)).chars().count(), MOST + 1);
        assert!(said(&"[".repeat(200_000)).len() < MOST + 4);
        // Each takes hundreds of bytes once it is read.
        assert!(said(&format!("[{}0]", r#"{"":0},"#.repeat(20_000))).len() < MOST + 4);
    }
}
