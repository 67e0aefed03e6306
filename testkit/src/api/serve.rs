//! One request from its head to its answer: recorded, spoilt if a fault says so, answered.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
    request::Parts,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use tower::Service;

use super::{
    Body, Caller, FakeApi, Shared,
    answer::{self, Form, Include, TableOptions},
    ask::Ask,
    create,
    delete::{self, DeleteOptions, Deleted},
    discovery, evict, forward, list,
    object::Object,
    patch::{self, PatchType},
    protobuf,
    query::Query,
    request::{self, Place, Target, Verb},
    status::{self, Status},
    tokens, watch,
    write::{self, Written},
};

/// As many bytes as a real server takes.
const BODY_LIMIT: usize = 3 << 20;

/// The body of a request, whatever brings it.
pub(crate) trait RequestBody:
    http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send
{
}

impl<B> RequestBody for B where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send
{
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<B: RequestBody + 'static> Service<Request<B>> for FakeApi {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let api = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            Ok(match api.caller(&parts) {
                Some(caller) => {
                    let ask = api.ask(&parts, caller);
                    api.answer(ask, &parts.headers, body).await
                }
                None => answer::refusal(&Status::unauthorized()),
            })
        })
    }
}

impl FakeApi {
    /// Who asks: whom a front found out, or whoever's token it is, or the admin.
    fn caller(&self, parts: &Parts) -> Option<Caller> {
        if let Some(caller) = parts.extensions.get::<Caller>() {
            return Some(caller.clone());
        }
        match parts.headers.get(AUTHORIZATION) {
            Some(shown) => self.authenticate(shown.to_str().ok()?.strip_prefix("Bearer ")?),
            None => Some(Caller::admin()),
        }
    }

    /// What a request is about.
    pub(crate) fn ask(&self, parts: &Parts, caller: Caller) -> Ask {
        let path = parts.uri.path();
        let query = parts.uri.query().unwrap_or_default();
        let target = self.shared.store.with(|state| Target::of(path, state));
        Ask {
            verb: request::verb(&parts.method, &target, &Query::parse(query)),
            path: path.into(),
            query: query.into(),
            host: host(parts).into(),
            target,
            caller,
            luck: self.shared.dice.luck(),
        }
    }

    /// The answer to a request that was let in.
    pub(crate) async fn answer<B: RequestBody>(
        &self,
        ask: Ask,
        headers: &HeaderMap,
        body: B,
    ) -> Response<Body> {
        let shared = &self.shared;
        let number = shared.journal.record(&ask, shared.clock.now());
        let answer = match shared.faults.met(&ask).await {
            Some(spoilt) => spoilt,
            None => match serve(shared, &ask, headers, body).await {
                Ok(answer) => answer,
                Err(status) => answer::refusal(&status),
            },
        };
        shared.journal.answered(number, answer.status().as_u16());
        answer
    }
}

fn host(parts: &Parts) -> &str {
    let header = || parts.headers.get(HOST)?.to_str().ok();
    let named = parts.uri.authority().map(http::uri::Authority::as_str);
    named.or_else(header).unwrap_or_default()
}

async fn serve<B: RequestBody>(
    shared: &Arc<Shared>,
    ask: &Ask,
    headers: &HeaderMap,
    body: B,
) -> Result<Response<Body>, Status> {
    let verb = ask.verb.clone()?;
    match &ask.target {
        Target::Health => Ok(answer::text(StatusCode::OK, "ok")),
        Target::Version => Ok(answer::document(StatusCode::OK, &discovery::version())),
        Target::Discovery => discover(shared, ask, headers),
        Target::WhoAmI => {
            read(body).await?;
            Ok(answer::document(
                StatusCode::CREATED,
                &tokens::who_am_i(shared, &ask.caller),
            ))
        }
        Target::NoSuchResource => Err(Status::no_such_path()),
        Target::NoSuchPart(place) => Err(Status::not_found(&place.kind, &place.name)),
        Target::Nowhere => Ok(no_page()),
        Target::Objects(place) => objects(shared, ask, verb, place, headers, body).await,
    }
}

fn discover(shared: &Shared, ask: &Ask, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let form = Form::accepted(headers)?;
    let all = form == Form::AllGroups && !shared.faults.discovery_is_old(ask);
    shared.store.with(|state| {
        if all && let Some(all) = discovery::all_groups(state, &ask.path) {
            let mut response = answer::document(StatusCode::OK, &all);
            let content_type = http::HeaderValue::from_static(discovery::ALL_GROUPS);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            return Ok(response);
        }
        let document = discovery::document(state, &ask.path, &ask.host);
        document
            .map(|document| answer::document(StatusCode::OK, &document))
            .map_or_else(|| Ok(no_page()), Ok)
    })
}

fn no_page() -> Response<Body> {
    answer::text(StatusCode::NOT_FOUND, "404 page not found\n")
}

async fn objects<B: RequestBody>(
    shared: &Arc<Shared>,
    ask: &Ask,
    verb: Verb,
    place: &Place,
    headers: &HeaderMap,
    body: B,
) -> Result<Response<Body>, Status> {
    let query = Query::parse(&ask.query);
    let form = Form::accepted(headers)?;
    let view = View {
        shared,
        form,
        include: Include::parse(query.text("includeObject"))?,
    };
    if place.part == "portforward" {
        return forward::forward(shared, ask, place, headers);
    }
    match verb {
        Verb::List => list::list(shared, place, &query, form).await,
        Verb::Watch => watch::watch(shared, ask, place, &query, form).await,
        Verb::Get => {
            if let Some(version) = query.watch_version()?.filter(|version| *version > 0) {
                list::until(shared, place, version).await?;
            }
            let object = shared
                .store
                .with(|state| state.get(&place.kind, &place.key()).cloned());
            let object = object.ok_or_else(|| Status::not_found(&place.kind, &place.name))?;
            Ok(view.object(StatusCode::OK, &object))
        }
        Verb::Create => {
            let value = read_object(headers, body).await?;
            let document = match &*place.part {
                "eviction" => evict::evict(shared, place, &value, &query)?,
                "token" => tokens::issue(shared, place, value)?,
                _ => {
                    let written = create::create(shared, place, value, query.dry_run()?)?;
                    return Ok(view.written(StatusCode::CREATED, written));
                }
            };
            Ok(answer::document(StatusCode::CREATED, &document))
        }
        Verb::Update => {
            let value = read_object(headers, body).await?;
            let (written, created) = write::update(shared, place, value, query.dry_run()?)?;
            Ok(view.written(
                if created {
                    StatusCode::CREATED
                } else {
                    StatusCode::OK
                },
                written,
            ))
        }
        Verb::Patch => {
            let how = PatchType::of(headers, &place.kind)?;
            let value = parse(&read(body).await?)?;
            let written = patch::patch(shared, place, how, &value, query.dry_run()?)?;
            Ok(view.written(StatusCode::OK, written))
        }
        Verb::Delete => {
            let options = delete_options(headers, body, &query).await?;
            let delete =
                |state: &mut _| delete::delete(shared, state, &place.kind, &place.key(), &options);
            Ok(view.deleted(shared.store.with(delete)?))
        }
        Verb::DeleteCollection => {
            let options = delete_options(headers, body, &query).await?;
            let selector = query.selector(&place.kind)?;
            let page = delete::delete_collection(shared, place, &selector, &options)?;
            Ok(answer::respond(
                StatusCode::OK,
                "application/json",
                page.body(&place.kind, form),
            ))
        }
    }
}

/// How what was written is shown.
struct View<'a> {
    shared: &'a Shared,
    form: Form,
    include: Include,
}

impl View<'_> {
    fn object(&self, code: StatusCode, object: &Arc<Object>) -> Response<Body> {
        let options = TableOptions {
            now: self.shared.clock.now(),
            include: self.include,
            columns: true,
        };
        answer::json(code, self.form.one(object, options))
    }

    fn written(&self, code: StatusCode, written: Written) -> Response<Body> {
        match written {
            Written::Stored(object) => self.object(code, &object),
            Written::Dry(value) => answer::document(code, &value),
        }
    }

    fn deleted(&self, deleted: Deleted) -> Response<Body> {
        match deleted {
            Deleted::Ending(written) => self.written(StatusCode::OK, written),
            Deleted::Gone(shown, object) if object.kind.rules.returns_deleted => {
                answer::document(StatusCode::OK, &shown)
            }
            Deleted::Gone(shown, object) => {
                let status =
                    status::success(&object.kind, object.name(), &shown["metadata"]["uid"]);
                answer::document(StatusCode::OK, &status)
            }
        }
    }
}

async fn delete_options<B: RequestBody>(
    headers: &HeaderMap,
    body: B,
    query: &Query<'_>,
) -> Result<DeleteOptions, Status> {
    let body = read(body).await?;
    let value = if body.is_empty() {
        Value::Null
    } else {
        decode(headers, &body)?
    };
    DeleteOptions::of(&value, query)
}

async fn read_object<B: RequestBody>(headers: &HeaderMap, body: B) -> Result<Value, Status> {
    decode(headers, &read(body).await?)
}

/// JSON, or protobuf as far as it is understood.
fn decode(headers: &HeaderMap, body: &[u8]) -> Result<Value, Status> {
    let sent = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], http::HeaderValue::as_bytes);
    if sent.starts_with(protobuf::MEDIA_TYPE.as_bytes()) {
        return protobuf::decode(body).map_err(|wrong| {
            Status::bad_request(format!("no protobuf that is understood here: {wrong}"))
        });
    }
    if !sent.is_empty() && !sent.starts_with(b"application/json") {
        return Err(Status::unsupported_media_type(&[
            "application/json",
            protobuf::MEDIA_TYPE,
        ]));
    }
    parse(body)
}

async fn read<B: RequestBody>(body: B) -> Result<Bytes, Status> {
    let body = Limited::new(body, BODY_LIMIT).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            Status::too_large()
        } else {
            Status::bad_request("the body broke off")
        }
    })?;
    Ok(body.to_bytes())
}

fn parse(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body).map_err(|error| Status::bad_request(format!("no JSON: {error}")))
}
