//! A server as a plain model: objects, versions, a history; and a loop with its store that talks to it, in simulated time.

use std::collections::BTreeMap;

use super::*;
use crate::{
    entry::{Draft, DraftKeys, Kept},
    json::{Object, Paths},
    objects::Objects,
    version::Uid,
    writer::{Change, Writer},
};

/// By name: its UID and version.
type All = BTreeMap<String, (u64, u64)>;

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Put(u8),
    Delete(u8),
    /// Deleted, and there again under the same name.
    Recreate(u8),
    /// So many seconds.
    Pass(u64),
    Bookmarks,
    Compact,
    Backup,
    /// All is as it was: versions go back.
    Restore,
    EndWatches,
    Break,
    Fault(Fault),
}

/// What the server does from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    None,
    /// Each request fails so.
    Status(Failure),
    /// It refuses to stream what there is.
    NoStreams,
    /// It streams what there is, and never says that this was all.
    StreamsHaveNoEnd,
    /// Nothing comes on watches.
    Silent,
    EndsAtOnce,
    /// Watches break after so many events.
    CutAfter(usize),
}

#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) objects: All,
    version: u64,
    uids: u64,
    /// What each version was: an object's name, its UID, and whether it was deleted.
    history: BTreeMap<u64, (String, u64, bool)>,
    compacted: u64,
}

impl Server {
    fn put(&mut self, name: &str) {
        self.version += 1;
        let known = self.objects.get(name).map(|(uid, _)| *uid);
        let uid = known.unwrap_or_else(|| {
            self.uids += 1;
            self.uids
        });
        self.objects.insert(name.into(), (uid, self.version));
        self.history.insert(self.version, (name.into(), uid, false));
    }

    fn delete(&mut self, name: &str) {
        if let Some((uid, _)) = self.objects.remove(name) {
            self.version += 1;
            self.history.insert(self.version, (name.into(), uid, true));
        }
    }
}

pub(super) struct Sim {
    pub(super) server: Server,
    backup: Server,
    fault: Fault,
    machine: Machine,
    writer: Writer,
    now: Instant,
    /// What is in flight.
    flight: Option<Flight>,
    /// What all changes that were told add up to.
    pub(super) told: All,
    requests: usize,
    /// A watch from a version that is yet to come is refused; else it is taken, and says nothing until then.
    refuses_future: bool,
}

struct Flight {
    /// Up to here it has been sent.
    sent: u64,
    events: usize,
    listing: bool,
}

impl Sim {
    pub(super) fn new(mut server: Server, seed: u64) -> Self {
        let now = Instant::now();
        server.version = 1;
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            backup: server.clone(),
            server,
            fault: Fault::None,
            machine: Machine::new(LoopOptions::default(), Way::Stream, None, now, rng),
            writer: Writer::new(Objects::new(0)),
            now,
            flight: None,
            told: All::new(),
            requests: 0,
            refuses_future: seed.is_multiple_of(2),
        }
    }

    pub(super) fn known(&self) -> All {
        let all = self.writer.objects().iter().map(|entry| {
            let (Uid::Other(uid), Version::Number(version)) = (&entry.uid, &entry.version) else {
                panic!("as they were given");
            };
            (
                entry.name.to_string(),
                (uid[1..].parse().unwrap(), *version),
            )
        });
        all.collect()
    }

    pub(super) fn step(&mut self, step: Step) {
        let name = |name: u8| format!("n{name}");
        match step {
            Step::Put(nth) => self.server.put(&name(nth)),
            Step::Delete(nth) => self.server.delete(&name(nth)),
            Step::Recreate(nth) => {
                self.server.delete(&name(nth));
                self.server.put(&name(nth));
            }
            Step::Pass(seconds) => self.pass(SECOND * u32::try_from(seconds).unwrap()),
            Step::Bookmarks => self.bookmark(),
            Step::Compact => self.server.compacted = self.server.version,
            Step::Backup => self.backup = self.server.clone(),
            Step::Restore => {
                let uids = self.server.uids;
                self.server = Server {
                    uids,
                    ..self.backup.clone()
                };
                self.break_off();
                // It is seen if a watch goes on before as many versions are given out again. Of later, nobody can know (which is
                // what etcd's `--bump-revision` is for).
                self.fault = Fault::None;
                self.pass(SECOND * 400);
            }
            Step::EndWatches => {
                if self.flight.take_if(|flight| !flight.listing).is_some() {
                    self.hear(Heard::Ended);
                }
            }
            Step::Break => self.break_off(),
            Step::Fault(fault) => self.fault = fault,
        }
        self.go();
    }

    fn break_off(&mut self) {
        if self.flight.take().is_some() {
            self.hear(Heard::Failed(Failure::Other));
        }
    }

    /// Until nothing happens any more: with the bookmarks that come.
    pub(super) fn settle(&mut self) {
        for _ in 0..40 {
            self.pass(SECOND * 60);
            self.bookmark();
            self.go();
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.go();
            match self.machine.deadline() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
            if let Then::Close(_) = self.machine.tick(self.now) {
                self.close();
            }
        }
        self.now = end;
    }

    fn bookmark(&mut self) {
        let silent = self.fault == Fault::Silent;
        if let Some(flight) = &self.flight
            && !flight.listing
            && !silent
            // From a version that is yet to come, nothing is.
            && flight.sent <= self.server.version
        {
            let version = flight.sent.max(self.server.version);
            self.go();
            self.hear(bookmark(version, false));
        }
    }

    fn close(&mut self) {
        self.flight = None;
        self.writer.forget_list();
    }

    /// Whatever happens without time passing.
    fn go(&mut self) {
        for _ in 0..1_000 {
            let before = self.requests;
            if self.flight.is_none()
                && let Some(request) = self.machine.request(self.now)
            {
                self.requests += 1;
                self.answer(request);
            }
            self.send();
            if self.requests == before {
                return;
            }
        }
        panic!("requests without end, and no time passes");
    }

    fn answer(&mut self, request: Request) {
        if let Fault::Status(failure) = self.fault {
            return self.hear(Heard::Failed(failure));
        }
        let version = self.server.version;
        let flight = |sent, listing| Flight {
            sent,
            events: 0,
            listing,
        };
        match request {
            Request::Stream { .. } if self.fault == Fault::NoStreams => {
                self.hear(Heard::Failed(Failure::Invalid));
            }
            Request::Stream { .. } => {
                self.flight = Some(flight(version, true));
                self.hear(Heard::Opened);
                for (name, (uid, version)) in self.server.objects.clone() {
                    self.object(&name, uid, version, true);
                }
                if self.fault != Fault::StreamsHaveNoEnd {
                    self.flight = self.flight.take().map(|flight| Flight {
                        listing: false,
                        ..flight
                    });
                    self.hear(bookmark(version, true));
                }
            }
            // Two objects a page; where the next begins has the version that it is of.
            Request::Page { next, .. } => {
                let (at, after) = match &next {
                    None => (version, String::new()),
                    Some(next) => {
                        let (at, after) = next.split_once(' ').unwrap();
                        (at.parse().unwrap(), after.to_owned())
                    }
                };
                // Only the newest is at hand; an older one is as good as compacted.
                if at != version {
                    return self.hear(Heard::Failed(Failure::Expired));
                }
                let rest = self
                    .server
                    .objects
                    .clone()
                    .into_iter()
                    .filter(|(name, _)| *name > after);
                let rest: Vec<_> = rest.collect();
                for (name, (uid, version)) in rest.iter().take(2) {
                    self.stage(name, *uid, *version);
                }
                let next = rest.get(2).map(|_| format!("{at} {}", rest[1].0));
                self.hear(page(at, next.as_deref()));
            }
            Request::Check => self.hear(page(version, None)),
            Request::Watch { version: from, .. } => {
                let Version::Number(from) = from else {
                    panic!("as it was given")
                };
                if from < self.server.compacted {
                    return self.hear(Heard::Failed(Failure::Expired));
                }
                if from > self.server.version && self.refuses_future {
                    return self.hear(Heard::Failed(Failure::TooLarge));
                }
                self.flight = Some(flight(from, false));
                self.hear(Heard::Opened);
            }
        }
    }

    /// What is new, on the watch that is open.
    fn send(&mut self) {
        while let Some(flight) = &mut self.flight {
            match self.fault {
                Fault::Silent => return,
                Fault::EndsAtOnce if !flight.listing => {
                    self.flight = None;
                    return self.hear(Heard::Ended);
                }
                Fault::CutAfter(events) if flight.events >= events => return self.break_off(),
                _ => (),
            }
            let next = self.server.history.range(flight.sent + 1..).next();
            let Some((&version, (name, uid, deleted))) = next else {
                return;
            };
            flight.sent = version;
            flight.events += 1;
            let (name, uid, there) = (name.clone(), *uid, !*deleted);
            self.object(&name, uid, version, there);
        }
    }

    fn object(&mut self, name: &str, uid: u64, version: u64, there: bool) {
        let then = self.machine.hear(self.now, object(version));
        let json = json(name, uid, version);
        let object = Object::read(&json, &Paths::default()).unwrap();
        let told = &mut self.told;
        match then {
            Then::Stage if there => {
                self.writer
                    .stage(&object, self.machine.trusts_versions(), || draft(&object));
            }
            Then::Stage => self.writer.stage_deletion(&object),
            Then::Apply if there => {
                self.writer
                    .apply(&object, || draft(&object), &mut |change| {
                        tell(told, &change);
                    });
            }
            Then::Apply => self
                .writer
                .delete(&object, &mut |change| tell(told, &change)),
            Then::Close(_) => self.close(),
            Then::Nothing | Then::Commit => panic!("an object is for something"),
        }
    }

    fn stage(&mut self, name: &str, uid: u64, version: u64) {
        let json = json(name, uid, version);
        let object = Object::read(&json, &Paths::default()).unwrap();
        self.writer
            .stage(&object, self.machine.trusts_versions(), || draft(&object));
    }

    fn hear(&mut self, heard: Heard) {
        match self.machine.hear(self.now, heard) {
            Then::Commit => {
                let told = &mut self.told;
                self.writer.commit(&mut |change| tell(told, &change));
            }
            Then::Close(_) => self.close(),
            Then::Nothing | Then::Stage | Then::Apply => (),
        }
    }
}

fn json(name: &str, uid: u64, version: u64) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","uid":"u{uid}","resourceVersion":"{version}"}}}}"#)
}

fn draft<'o>(object: &'o Object<'_>) -> Draft<'o> {
    Draft {
        namespace: &object.namespace,
        name: &object.name,
        uid: Uid::of(&object.uid),
        version: Version::of(&object.version),
        keys: DraftKeys::new(),
        kept: Kept::Encoded("".into()),
        bytes: 0,
    }
}

/// Adds up what is told, and minds that it can be so.
fn tell(told: &mut All, change: &Change) {
    let of = |entry: &crate::entry::Entry| {
        let (Uid::Other(uid), Version::Number(version)) = (&entry.uid, &entry.version) else {
            panic!("as they were given");
        };
        (uid[1..].parse().unwrap(), *version)
    };
    match change {
        Change::Added(new) => {
            let old = told.insert(new.name.to_string(), of(new));
            assert_eq!(old, None, "it was added twice");
        }
        Change::Modified { old, new } => {
            let known = told.insert(new.name.to_string(), of(new));
            assert_eq!(known, Some(of(old)), "it was another before");
            assert_eq!(of(old).0, of(new).0, "it is the same object");
        }
        Change::Deleted(old) => {
            let known = told.remove(&*old.name);
            assert_eq!(known, Some(of(old)), "it was not there");
        }
    }
}
