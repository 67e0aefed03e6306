//! Tokens of service accounts, by `TokenRequest`: they end when they say so, or with their account.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    Shared,
    ask::Caller,
    builtin,
    clock::written,
    request::Place,
    status::{Cause, Status},
};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Seconds of a token that asks for none, and the fewest and the most that one may ask for.
const USUAL: i64 = 3600;
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// All tokens that were issued and have not ended.
#[derive(Default)]
pub(super) struct Tokens(Mutex<BTreeMap<String, Issued>>);

struct Issued {
    namespace: String,
    name: String,
    uid: String,
    until: Timestamp,
}

/// Issues a token for a service account; the answer is the `TokenRequest` with its status.
pub(super) fn issue(shared: &Shared, place: &Place, mut request: Value) -> Result<Value, Status> {
    if !request.is_object() {
        return Err(Status::bad_request(
            "the body is no TokenRequest of authentication.k8s.io/v1",
        ));
    }
    let account = shared
        .store
        .with(|state| state.get(&place.kind, &place.key()).cloned());
    let account = account.ok_or_else(|| Status::not_found(&place.kind, &place.name))?;
    let seconds = request["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or(USUAL);
    check(seconds, shared.shortest_token.unwrap_or(SHORTEST))?;
    let audiences = match request["spec"]["audiences"].as_array() {
        Some(audiences) if !audiences.is_empty() => audiences.clone(),
        _ => vec![ISSUER.into()],
    };
    let now = shared.clock.now();
    let until = now + Duration::from_secs(seconds.unsigned_abs());
    let value = account.value();
    let issued = Issued {
        namespace: place.namespace.clone(),
        name: place.name.clone(),
        uid: value["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        until,
    };
    let token = issued.token(&audiences, now, &shared.dice.bytes::<32>());
    {
        let mut tokens = shared.tokens.0.lock();
        tokens.retain(|_, issued| issued.until > now);
        tokens.insert(token.clone(), issued);
    }
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    let metadata = &mut request["metadata"];
    metadata["name"] = place.name.as_str().into();
    metadata["namespace"] = place.namespace.as_str().into();
    metadata["creationTimestamp"] = written(now).into();
    metadata["uid"] = shared.dice.uid().into();
    request["spec"]["audiences"] = audiences.into();
    request["spec"]["expirationSeconds"] = seconds.into();
    request["status"] = json!({ "token": token, "expirationTimestamp": written(until) });
    Ok(request)
}

fn check(seconds: i64, shortest: i64) -> Result<(), Status> {
    let why = if seconds < shortest {
        "may not specify a duration less than 10 minutes"
    } else if seconds > LONGEST {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let cause = Cause::invalid("spec.expirationSeconds", &seconds.into(), why);
    Err(Status::invalid_as(
        "authentication.k8s.io",
        "TokenRequest",
        "",
        &[cause],
    ))
}

impl Issued {
    /// As a JWT, which clients may read for its end. Nothing verifies its signature: it is known by itself.
    fn token(&self, audiences: &[Value], now: Timestamp, signature: &[u8]) -> String {
        let payload = json!({
            "aud": audiences, "exp": self.until.as_second(), "iat": now.as_second(), "nbf": now.as_second(),
            "iss": ISSUER, "sub": self.user(),
            "kubernetes.io": {
                "namespace": self.namespace,
                "serviceaccount": { "name": self.name, "uid": self.uid },
            },
        });
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let head = json!({ "alg": "RS256", "kid": "fake" }).to_string();
        format!(
            "{}.{}.{}",
            encode(head.as_bytes()),
            encode(payload.to_string().as_bytes()),
            encode(signature)
        )
    }

    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Whose token it is, if it has not ended.
pub(super) fn authenticate(shared: &Shared, token: &str) -> Option<Caller> {
    let now = shared.clock.now();
    let (mut caller, namespace, name, uid) = {
        let tokens = shared.tokens.0.lock();
        let issued = tokens.get(token).filter(|issued| issued.until > now)?;
        let groups = [
            "system:serviceaccounts",
            &format!("system:serviceaccounts:{}", issued.namespace),
        ];
        let caller = Caller::new(&issued.user(), &groups);
        (
            caller,
            issued.namespace.clone(),
            issued.name.clone(),
            issued.uid.clone(),
        )
    };
    let kind = builtin::named("", "serviceaccounts");
    let account = shared
        .store
        .with(|state| state.get(kind, &kind.key(&namespace, &name)).cloned())?;
    (account.value()["metadata"]["uid"] == *uid).then(|| {
        caller.uid = Some(Arc::from(uid));
        caller
    })
}

/// `SelfSubjectReview`: who asks.
pub(super) fn who_am_i(shared: &Shared, caller: &Caller) -> Value {
    let groups: Vec<&str> = caller.groups.iter().map(AsRef::as_ref).collect();
    let mut user = json!({ "username": &*caller.user, "groups": groups });
    if let Some(uid) = &caller.uid {
        user["uid"] = (**uid).into();
    }
    json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "creationTimestamp": written(shared.clock.now()) }, "status": { "userInfo": user },
    })
}
