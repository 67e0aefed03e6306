//! The headers by which we act as somebody else. Where an access says as whom, a request cannot say otherwise.

use clustercache::Impersonation;
use http::{HeaderName, HeaderValue, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What all of them begin with; header names are lower case here.
const PREFIX: &str = "impersonate-";

/// What cannot stand in a header's name, and `%`, as client-go has it. API servers decode it.
const NO_NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// As whom requests are made, ready to be put on them.
pub(crate) struct Acting(Box<[(HeaderName, HeaderValue)]>);

/// A request has our headers on it, from an earlier try.
#[derive(Clone)]
struct Acted;

impl Acting {
    pub(crate) fn of(who: Option<&Impersonation>) -> Self {
        let Some(who) = who else {
            return Self(Box::default());
        };
        let mut headers = vec![header("user", &who.user)];
        headers.extend(who.uid.iter().map(|uid| header("uid", uid)));
        headers.extend(who.groups.iter().map(|group| header("group", group)));
        for (name, values) in &who.extra {
            let name = format!("extra-{}", utf8_percent_encode(name, NO_NAME));
            headers.extend(values.iter().map(|value| header(&name, value)));
        }
        Self(headers.into())
    }

    pub(crate) fn sign<B>(&self, request: &mut Request<B>) {
        if self.0.is_empty() && request.extensions().get::<Acted>().is_none() {
            return;
        }
        let others: Vec<_> = request
            .headers()
            .keys()
            .filter(|name| name.as_str().starts_with(PREFIX))
            .cloned()
            .collect();
        for name in others {
            request.headers_mut().remove(name);
        }
        for (name, value) in &self.0 {
            request.headers_mut().append(name.clone(), value.clone());
        }
        request.extensions_mut().insert(Acted);
    }
}

fn header(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    let name = HeaderName::from_bytes(format!("{PREFIX}{name}").as_bytes());
    (
        name.expect("what cannot stand in a name is encoded"),
        HeaderValue::from_bytes(value.as_bytes()).expect("an access checks its impersonation"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Impersonation {
        let mut who = Impersonation::user("jane");
        who.uid = Some("7".into());
        who.groups = vec!["ops".into(), "dev".into()];
        who.extra
            .insert("example.org/Größe %".into(), vec!["a".into(), "b".into()]);
        who
    }

    fn all(request: &Request<()>) -> Vec<(String, String)> {
        let headers = request.headers().iter();
        headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    #[test]
    fn a_request_cannot_act_as_another_than_the_access_says() {
        let mut request = Request::get("/")
            .header("Impersonate-User", "admin")
            .header("Impersonate-Extra-scopes", "all")
            .header("accept", "x")
            .body(())
            .unwrap();
        let acting = Acting::of(Some(&who()));
        let expected = [
            ("accept", "x"),
            ("impersonate-user", "jane"),
            ("impersonate-uid", "7"),
            ("impersonate-group", "ops"),
            ("impersonate-group", "dev"),
            ("impersonate-extra-example.org%2fgr%c3%b6%c3%9fe%20%25", "a"),
            ("impersonate-extra-example.org%2fgr%c3%b6%c3%9fe%20%25", "b"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        for _ in 0..2 {
            acting.sign(&mut request);
            assert_eq!(all(&request), expected);
        }
        // The next try is signed by an access that acts as nobody else.
        Acting::of(None).sign(&mut request);
        assert_eq!(all(&request), [("accept".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn where_the_access_does_not_say_as_whom_a_request_may() {
        let request = Request::get("/").header("Impersonate-User", "jane");
        let mut request = request.body(()).unwrap();
        Acting::of(None).sign(&mut request);
        assert!(request.headers().contains_key("impersonate-user"));
    }
}
