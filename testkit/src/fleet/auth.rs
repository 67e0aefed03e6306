//! Who is let in, and what was shown to which endpoint, valid or not.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use http::{HeaderMap, header::AUTHORIZATION};
use parking_lot::Mutex;

/// Valid tokens, accepted users, and all tokens that were ever seen.
pub(super) struct Auth(Mutex<State>);

struct State {
    current: String,
    valid: BTreeSet<String>,
    users: BTreeSet<String>,
    seen: BTreeMap<SocketAddr, BTreeSet<String>>,
}

impl Auth {
    pub(super) fn new(token: String, user: &str) -> Self {
        Self(Mutex::new(State {
            valid: [token.clone()].into(),
            current: token,
            users: [user.to_owned()].into(),
            seen: BTreeMap::new(),
        }))
    }

    /// Makes `token` the current one, beside the older ones or alone.
    pub(super) fn rotate(&self, token: &str, keep_old: bool) {
        let mut state = self.0.lock();
        if !keep_old {
            state.valid.clear();
        }
        state.valid.insert(token.to_owned());
        token.clone_into(&mut state.current);
    }

    pub(super) fn current(&self) -> String {
        self.0.lock().current.clone()
    }

    pub(super) fn valid(&self) -> BTreeSet<String> {
        self.0.lock().valid.clone()
    }

    pub(super) fn accept_token(&self, token: &str) {
        self.0.lock().valid.insert(token.to_owned());
    }

    pub(super) fn revoke_token(&self, token: &str) {
        self.0.lock().valid.remove(token);
    }

    pub(super) fn accept_user(&self, user: &str) {
        self.0.lock().users.insert(user.to_owned());
    }

    pub(super) fn reject_user(&self, user: &str) {
        self.0.lock().users.remove(user);
    }

    /// Records what was shown, before anything is judged.
    pub(super) fn record(&self, endpoint: SocketAddr, token: &str) {
        let mut state = self.0.lock();
        let seen = state.seen.entry(endpoint).or_default();
        if !seen.contains(token) {
            seen.insert(token.to_owned());
        }
    }

    pub(super) fn seen_at(&self, endpoint: SocketAddr) -> BTreeSet<String> {
        self.0
            .lock()
            .seen
            .get(&endpoint)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn seen(&self) -> BTreeSet<String> {
        self.0.lock().seen.values().flatten().cloned().collect()
    }

    pub(super) fn admits_token(&self, token: &str) -> bool {
        self.0.lock().valid.contains(token)
    }

    pub(super) fn admits_user(&self, user: &str) -> bool {
        self.0.lock().users.contains(user)
    }
}

/// The bearer token of a request. One that is no text is recorded as it would print.
pub(super) fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| String::from_utf8_lossy(token).trim().to_owned())
}
