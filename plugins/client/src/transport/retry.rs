//! Sending again what a server was too busy for: few times, within the call's deadline, and only where that cannot do a thing twice. (What
//! a server has not looked at is sent again in `call.rs`; there is one count of both.)

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep};

use super::{Transport, body::ResponseBody, call::Sends, class::Class, error::TransportError};

/// What a server may ask us to wait.
const LONGEST: Duration = Duration::from_secs(10);
/// The wait before the second try where it says nothing; twice that before the third.
const FIRST: Duration = Duration::from_millis(200);
/// What is read of an answer that is not used, so that its HTTP/1.1 connection is.
const MOST: usize = 16 << 10;

impl Transport {
    /// Sends `request` as one of `class`, again where the server is too busy for it. Dropping the future cancels the request, and nothing
    /// else.
    pub(crate) async fn call_as(
        &self,
        mut request: Request<Body>,
        class: Class,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let shared = &self.0.shared;
        let until = Instant::now() + class.deadline(&shared.deadlines);
        let mut sends = Sends::default();
        for nth in 1.. {
            let copy = if sends.left > 1 { copy(&request) } else { None };
            let sent = self.send_until(request, class, until, &mut sends);
            let answer = sent.await?;
            let wait = copy.filter(|_| sends.left > 0).and_then(|copy| {
                let wait = wait(nth, copy.method(), answer.status(), answer.headers())?;
                Some((copy, wait))
            });
            let Some((copy, wait)) = wait else {
                return Ok(answer);
            };
            // The answer says more than a deadline that passed.
            if Instant::now() + wait >= until {
                return Ok(answer);
            }
            drain(answer.into_body()).await;
            tokio::select! {
                () = shared.closing.cancelled() => return Err(TransportError::Retired),
                () = sleep(wait) => (),
            }
            shared.retries.fetch_add(1, Relaxed);
            shared.hooks.counts.sent_again();
            request = copy;
        }
        unreachable!("the last try has no copy")
    }

    /// How many calls were sent again.
    pub(crate) fn retries(&self) -> u64 {
        self.0.shared.retries.load(Relaxed)
    }
}

/// None of what cannot be sent twice: a body that is made as it is sent, a change of protocol.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    if request.headers().contains_key(header::UPGRADE) {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// How long to wait before the try after the `nth`; none if there is to be none.
fn wait(nth: u32, method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(header::RETRY_AFTER);
    let asked = asked.and_then(|value| seconds(value.as_bytes()));
    // A deletion by name may hit another object of that name the second time, a replacement what was written in between.
    let is_harmless = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let again = match status {
        // The API server's queues have not let it in, whatever it is.
        StatusCode::TOO_MANY_REQUESTS => is_harmless || asked.is_some(),
        // It may have been done, and its answer lost behind a proxy.
        StatusCode::SERVICE_UNAVAILABLE => is_harmless,
        _ => false,
    };
    let backoff = FIRST * 2_u32.pow(nth - 1);
    // A fleet does not come back all at once.
    let jitter = 0.5 + fastrand::f64() / 2.0;
    again.then(|| asked.unwrap_or_default().min(LONGEST) + backoff.mul_f64(jitter))
}

/// Whole seconds only: a date is of another machine's clock. What no number can hold is long.
fn seconds(value: &[u8]) -> Option<Duration> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(value).ok()?.parse();
    Some(Duration::from_secs(number.unwrap_or(u64::MAX)))
}

async fn drain(mut body: ResponseBody) {
    let mut came = 0;
    while came < MOST {
        match body.frame().await {
            Some(Ok(frame)) => came += frame.data_ref().map_or(0, bytes::Bytes::len),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asked(nth: u32, method: &Method, status: u16, after: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(after).unwrap());
        }
        wait(nth, method, StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn only_whole_seconds_are_heeded_and_ten_at_most() {
        for (after, least) in [
            ("0", 0),
            ("3", 3),
            ("10", 10),
            ("11", 10),
            ("86400", 10),
            ("99999999999999999999999999", 10),
            ("-5", 0),
            ("+5", 0),
            ("1.5", 0),
            ("1e3", 0),
            ("", 0),
            (" ", 0),
            ("soon", 0),
            ("Wed, 21 Oct 2026 07:28:00 GMT", 0),
        ] {
            let wait = asked(1, &Method::GET, 503, Some(after)).unwrap();
            let least = Duration::from_secs(least);
            assert!(wait > least && wait <= least + FIRST, "{after}: {wait:?}");
        }
    }

    #[test]
    fn what_could_be_done_twice_is_sent_again_only_where_the_server_did_not_do_it() {
        for (method, status, after, again) in [
            (Method::GET, 429, None, true),
            (Method::GET, 503, None, true),
            (Method::PUT, 503, None, false),
            (Method::DELETE, 503, Some("1"), false),
            (Method::DELETE, 429, None, false),
            (Method::DELETE, 429, Some("1"), true),
            (Method::POST, 429, Some("1"), true),
            (Method::POST, 429, None, false),
            (Method::POST, 503, Some("1"), false),
            (Method::PATCH, 503, Some("1"), false),
            (Method::GET, 500, Some("1"), false),
            (Method::GET, 502, Some("1"), false),
            (Method::GET, 504, Some("1"), false),
            (Method::GET, 200, Some("1"), false),
        ] {
            let wait = asked(1, &method, status, after);
            assert_eq!(wait.is_some(), again, "{method} {status} {after:?}");
        }
    }

    #[test]
    fn waits_grow_and_differ() {
        let waits: Vec<_> = (1..3)
            .map(|nth| asked(nth, &Method::GET, 503, None).unwrap())
            .collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST);
        assert!(waits[1] >= FIRST && waits[1] <= FIRST * 2);
        let many = (0..100).map(|_| asked(1, &Method::GET, 503, None));
        assert!(many.collect::<std::collections::HashSet<_>>().len() > 50);
    }
}
