//! What a resource says of itself while it is up (rule 14), and which cluster of its name it is told that it speaks of (rule 9).

mod sim;

use std::sync::{Arc, Mutex};

use clustercache::{
    Identity, IdentityHandle, InitError, MemorySource, Reporter, ResourcePhase, Stage, Standing,
};
use sim::*;

#[derive(Debug, thiserror::Error)]
#[error("the signer is away\nfor lunch")]
struct Away;

/// A cluster with one resource, of which the test has the reporters.
async fn up(optional: bool) -> (Cache, MemorySource, Arc<Mutex<Vec<Reporter>>>) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let reporters = Arc::<Mutex<Vec<Reporter>>>::default();
    let custom = Custom::<0>::new().init({
        let reporters = Arc::clone(&reporters);
        move |cx| {
            reporters.lock().unwrap().push(cx.reporter());
            async { Ok(()) }
        }
    });
    let builder = builder(&world, &source);
    let builder = if optional {
        builder.optional(custom)
    } else {
        builder.resource(custom)
    };
    let cache = builder.start().unwrap();
    source.upsert(plain("a"));
    cache.wait_for(&key("a"), LONG).await.unwrap();
    (cache, source, reporters)
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_up_says_when_it_ends_and_what_fails_and_stays_up() {
    let (cache, _source, reporters) = up(false).await;
    let reporter = reporters.lock().unwrap()[0].clone();
    let value = cache.get::<Custom<0>>(&key("a")).unwrap();
    let end = cache.now() + secs(60);
    reporter.stands(Standing::well().expires(end));
    let state = until(&cache, "a", |state| {
        resource(state, "custom-0").expires.is_some()
    })
    .await;
    let well = resource(&state, "custom-0");
    assert_eq!(
        (well.expires, well.failures, well.message),
        (Some(end), 0, None)
    );
    assert!(cache.census().nearest_resource_expiry.is_some());
    assert_eq!(cache.census().troubled, 0);

    reporter.stands(Standing::well().expires(end).trouble(3, &Away));
    let state = until(&cache, "a", |state| {
        resource(state, "custom-0").failures > 0
    })
    .await;
    let troubled = resource(&state, "custom-0");
    assert_eq!(troubled.phase, ResourcePhase::Up);
    assert_eq!(troubled.failures, 3);
    assert_eq!(
        troubled.message.as_deref(),
        Some("the signer is away\\nfor lunch")
    );
    assert_eq!(cache.census().troubled, 1);
    let last = state.last_error.unwrap();
    assert_eq!(last.stage, Stage::Resource("custom-0"));
    assert!(value.is_current(), "nothing was torn down");

    reporter.stands(Standing::well());
    let state = until(&cache, "a", |state| {
        resource(state, "custom-0").failures == 0
    })
    .await;
    assert_eq!(resource(&state, "custom-0").message, None);
    assert_eq!(cache.census().nearest_resource_expiry, None);
    assert!(value.is_current());
}

#[tokio::test(start_paused = true)]
async fn what_was_said_of_a_value_goes_with_it() {
    let (cache, _source, reporters) = up(true).await;
    let old = reporters.lock().unwrap()[0].clone();
    old.stands(Standing::well().trouble(1, &Away));
    until(&cache, "a", |state| {
        resource(state, "custom-0").failures > 0
    })
    .await;
    old.failed(Away);
    let is_new = |state: &clustercache::ClusterState| {
        let resource = resource(state, "custom-0");
        resource.phase == ResourcePhase::Up && resource.failures == 0
    };
    until(&cache, "a", is_new).await;
    // One that speaks of what is no more says nothing.
    old.stands(Standing::well().trouble(7, &Away));
    settle().await;
    assert!(is_new(&cache.state(&key("a")).unwrap()));
    cache.shutdown().await.unwrap();
    old.stands(Standing::well());
    old.reconsider();
}

#[tokio::test(start_paused = true)]
async fn a_reporter_has_a_failed_init_tried_at_once() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let tries = Arc::<Mutex<Vec<Reporter>>>::default();
    let custom = Custom::<0>::new().init({
        let tries = Arc::clone(&tries);
        move |cx| {
            let mut tries = tries.lock().unwrap();
            tries.push(cx.reporter());
            let is_there = tries.len() > 1;
            async move {
                if is_there {
                    return Ok(());
                }
                // Later than all patience.
                Err(InitError::retry(Away).retry_after(LONG))
            }
        }
    });
    let cache = builder(&world, &source)
        .configure(|options| options.retry.most = LONG)
        .optional(custom)
        .start()
        .unwrap();
    source.upsert(plain("a"));
    until(&cache, "a", |state| {
        resource(state, "custom-0").failures > 0
    })
    .await;
    let begun = tokio::time::Instant::now();
    let reporter = tries.lock().unwrap()[0].clone();
    reporter.reconsider();
    until(&cache, "a", |state| {
        resource(state, "custom-0").phase == ResourcePhase::Up
    })
    .await;
    assert_eq!(begun.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_an_identity_is_current_over_reconnects_and_ends_before_another_is_seen() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let handles = Arc::<Mutex<Vec<IdentityHandle>>>::default();
    let custom = Custom::<0>::new()
        .init({
            let handles = Arc::clone(&handles);
            move |cx| {
                handles.lock().unwrap().push(cx.identity());
                async { Ok(()) }
            }
        })
        // Its connection is long on its way out.
        .teardown(|_, _| tokio::time::sleep(secs(4)));
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    source.upsert(cluster("a", "one", "a", "token"));
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let first = a.generation().unwrap();
    cache.reconnect(&key("a"));
    until(&cache, "a", |state| state.generation != first).await;
    let old = handles.lock().unwrap().clone();
    assert!(old.iter().all(IdentityHandle::is_current));
    assert_eq!(old[0].identity(), &Identity::Uid("one".into()));
    source.upsert(cluster("a", "two", "a", "token"));
    let two = Identity::Uid("two".into());
    until(&cache, "a", |state| {
        assert!(state.identity != two || !old[0].is_current());
        state.identity == two && state.phase.is_connected()
    })
    .await;
    let new = handles.lock().unwrap().last().unwrap().clone();
    assert!(new.is_current() && !old[1].is_current());
    assert_eq!(new.identity(), &two);
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    assert!(!new.is_current());
    // It comes back as a third one while the second is on its way out.
    source.upsert(cluster("a", "three", "a", "token"));
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let new = handles.lock().unwrap().last().unwrap().clone();
    assert_eq!(new.identity(), &Identity::Uid("three".into()));
    cache.shutdown().await.unwrap();
    assert!(!new.is_current());
}
