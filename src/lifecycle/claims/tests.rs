//! Claims against a naive model, and each rule by an example.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn key(n: usize) -> ClusterKey {
    ClusterKey::named(&n.to_string())
}

fn upsert(key_number: usize, uid: usize, text: usize) -> Upsert {
    let upsert = Upsert::refused(key(key_number), text.to_string());
    match uid {
        0 => upsert,
        uid => upsert.with_uid(uid.to_string()),
    }
}

fn named(uid: usize) -> Word {
    Word::Upsert {
        upsert: upsert(1, uid, 0),
        owned: true,
    }
}

fn shut_out(uid: usize) -> Word {
    Word::Upsert {
        upsert: upsert(1, uid, 0),
        owned: false,
    }
}

fn removed(uid: usize) -> Word {
    Word::Remove {
        key: key(1),
        identity: upsert(1, uid, 0).identity,
    }
}

fn claims(sources: usize) -> (Claims, Instant) {
    let now = Instant::now();
    (Claims::new(sources, now, &SourceOptions::default()), now)
}

fn synced(sources: usize) -> Claims {
    let (mut claims, _) = claims(sources);
    for source in 0..sources {
        claims.say(source, Word::Synced);
    }
    claims
}

/// Source, owned, shadowed.
fn counts(claims: &Claims) -> Option<(usize, bool, Vec<usize>)> {
    let claim = claims.get(&key(1))?;
    Some((claim.source, claim.owned, claim.shadowed))
}

#[test]
fn the_first_registered_wins_and_the_loser_takes_over_when_it_goes() {
    let mut claims = synced(2);
    assert_eq!(claims.say(1, named(1)), [key(1)]);
    assert_eq!(claims.say(0, named(1)), [key(1)]);
    assert_eq!(counts(&claims), Some((0, true, vec![1])));
    assert_eq!(claims.say(1, named(2)), [], "a loser's change is no change");
    assert_eq!(claims.say(0, removed(1)), [key(1)]);
    assert_eq!(counts(&claims), Some((1, true, vec![])));
    assert_eq!(claims.get(&key(1)).unwrap().upsert, upsert(1, 2, 0));
    assert_eq!(claims.say(1, removed(2)), [key(1)]);
    assert_eq!(counts(&claims), None);
}

#[test]
fn when_a_credential_ends_is_part_of_what_counts() {
    let ends = |at| {
        let access = crate::ClusterAccess::builder("https://a").token("t");
        let end = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        let access = access.expires(end).build().unwrap();
        Word::Upsert {
            upsert: Upsert::ready(key(1), access),
            owned: true,
        }
    };
    let mut claims = synced(1);
    assert_eq!(claims.say(0, ends(1)), [key(1)]);
    assert_eq!(claims.say(0, ends(1)), []);
    assert_eq!(claims.say(0, ends(2)), [key(1)]);
}

#[test]
fn a_lower_source_waits_for_the_first_synced_of_every_higher_one() {
    let (mut claims, _) = claims(3);
    claims.say(2, named(1));
    claims.say(2, Word::Synced);
    assert_eq!(counts(&claims), Some((2, false, vec![])));
    assert_eq!(claims.say(1, Word::Synced), []);
    assert!(claims.deadline().is_some() && !claims.all_synced());
    assert_eq!(claims.say(0, Word::Synced), [key(1)]);
    assert_eq!(counts(&claims), Some((2, true, vec![])));
    assert!(claims.deadline().is_none() && claims.all_synced());
    claims.say(0, Word::Began);
    assert_eq!(
        counts(&claims),
        Some((2, true, vec![])),
        "a later stream is not waited for"
    );
}

#[test]
fn the_wait_for_a_higher_source_ends_after_ten_seconds() {
    let (mut claims, now) = claims(2);
    claims.say(1, named(1));
    let end = now + Duration::from_secs(10);
    assert_eq!(claims.deadline(), Some(end));
    assert_eq!(
        claims.timer(end.checked_sub(Duration::from_nanos(1)).unwrap()),
        []
    );
    assert_eq!(claims.timer(end), [key(1)]);
    assert_eq!(counts(&claims), Some((1, true, vec![])));
    assert_eq!((claims.deadline(), claims.all_synced()), (None, false));
    assert_eq!(claims.say(0, named(1)), [key(1)], "and yet it wins, late");
    assert_eq!(counts(&claims), Some((0, true, vec![1])));
}

#[test]
fn a_lone_source_waits_for_nobody() {
    let (mut claims, _) = claims(1);
    assert_eq!(claims.deadline(), None);
    claims.say(0, named(1));
    assert_eq!(counts(&claims), Some((0, true, vec![])));
}

#[test]
fn a_claim_that_is_shut_out_makes_room_for_a_lower_one() {
    let mut claims = synced(2);
    claims.say(0, shut_out(1));
    assert_eq!(counts(&claims), Some((0, false, vec![])));
    claims.say(1, named(1));
    assert_eq!(counts(&claims), Some((1, true, vec![0])));
    claims.say(1, shut_out(1));
    assert_eq!(counts(&claims), Some((0, false, vec![1])));
}

#[test]
fn what_a_new_stream_has_not_named_goes_at_its_synced_and_not_before() {
    let mut claims = synced(1);
    claims.say(0, named(1));
    assert_eq!(claims.say(0, Word::Began), []);
    assert_eq!(claims.say(0, Word::Began), []);
    assert!(counts(&claims).is_some());
    assert_eq!(claims.say(0, Word::Synced), [key(1)]);
    assert_eq!(counts(&claims), None);

    claims.say(0, named(1));
    claims.say(0, Word::Began);
    assert_eq!(claims.say(0, named(1)), [], "the same again is no change");
    assert_eq!(claims.say(0, Word::Synced), []);
    assert!(counts(&claims).is_some());
}

#[test]
fn a_removal_is_by_identity() {
    let mut claims = synced(2);
    claims.say(0, named(2));
    assert_eq!(claims.say(0, removed(1)), []);
    assert_eq!(claims.say(1, removed(2)), [], "not another source's");
    assert_eq!(
        claims.say(0, removed(0)),
        [key(1)],
        "without a UID it is by name"
    );
    claims.say(0, named(0));
    assert_eq!(claims.say(0, removed(1)), [], "no UID is not that UID");
}

/// The same in the plainest way: everything that was said, looked through as a whole.
#[derive(Clone, Default)]
struct Model {
    claims: Vec<(usize, Upsert, bool, bool)>,
    synced: Vec<bool>,
    waited: bool,
}

impl Model {
    fn say(&mut self, source: usize, word: &Word) {
        let mine = |claim: &(usize, Upsert, bool, bool), key: &ClusterKey| {
            claim.0 == source && claim.1.key == *key
        };
        match word {
            Word::Began => {
                for claim in self.claims.iter_mut().filter(|claim| claim.0 == source) {
                    claim.3 = false;
                }
            }
            Word::Upsert { upsert, owned } => {
                self.claims.retain(|claim| !mine(claim, &upsert.key));
                self.claims.push((source, upsert.clone(), *owned, true));
            }
            Word::Remove { key, identity } => self.claims.retain(|claim| {
                !mine(claim, key) || *identity != Identity::ByCa && *identity != claim.1.identity
            }),
            Word::Synced => {
                self.synced[source] = true;
                self.claims.retain(|claim| claim.0 != source || claim.3);
            }
        }
    }

    fn get(&self, key: &ClusterKey) -> Option<Claim> {
        let mut all: Vec<_> = self
            .claims
            .iter()
            .filter(|claim| claim.1.key == *key)
            .collect();
        all.sort_by_key(|claim| (!claim.2, claim.0));
        let winner = *all.first()?;
        let ready = self.waited || self.synced[..winner.0].iter().all(|synced| *synced);
        let mut shadowed: Vec<_> = all[1..].iter().map(|claim| claim.0).collect();
        shadowed.sort_unstable();
        Some(Claim {
            source: winner.0,
            upsert: winner.1.clone(),
            owned: winner.2 && ready,
            shadowed,
        })
    }
}

const SOURCES: usize = 3;
const KEYS: usize = 4;

fn any_word() -> impl Strategy<Value = Word> {
    prop_oneof![
        1 => Just(Word::Began),
        1 => Just(Word::Synced),
        5 => (0..KEYS, 0..3_usize, 0..2_usize, any::<bool>())
            .prop_map(|(key, uid, text, owned)| Word::Upsert { upsert: upsert(key, uid, text), owned }),
        2 => (0..KEYS, 0..3_usize).prop_map(|(of, uid)| Word::Remove {
            key: key(of),
            identity: upsert(of, uid, 0).identity,
        }),
    ]
}

proptest! {
    #[test]
    fn what_counts_is_as_the_naive_model_says_and_only_real_changes_come_out(
        words in proptest::collection::vec((0..SOURCES, proptest::option::weighted(0.97, any_word())), 0..80),
    ) {
        let (mut claims, now) = claims(SOURCES);
        let mut model = Model { synced: vec![false; SOURCES], ..Model::default() };
        for (source, word) in words {
            let before = model.clone();
            let changed = if let Some(word) = word {
                model.say(source, &word);
                claims.say(source, word)
            } else {
                model.waited = true;
                claims.timer(now + Duration::from_secs(10))
            };
            let keys: Vec<_> = (0..KEYS).map(key).collect();
            for key in &keys {
                prop_assert_eq!(claims.get(key), model.get(key));
            }
            let really = keys.iter().filter(|key| before.get(key) != model.get(key));
            prop_assert_eq!(changed, really.cloned().collect::<Vec<_>>());
            prop_assert_eq!(claims.all_synced(), model.synced.iter().all(|synced| *synced));
            let may_wait = !model.waited && !model.synced[..SOURCES - 1].iter().all(|synced| *synced);
            prop_assert_eq!(claims.deadline().is_some(), may_wait);
            let known = keys.iter().filter(|key| model.get(key).is_some()).count();
            prop_assert_eq!(claims.named.len(), known, "nothing is kept of what is gone");
        }
    }
}
