//! What a user may give or do, however odd, and what it must not do to anybody else.

mod sim;

use std::time::Duration;

use clustercache::{Changes, EngineStatus, MemorySource, WaitError};
use futures_util::{FutureExt, StreamExt};
use sim::*;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_time_that_is_never_overflows_nothing() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    world.with_permits();
    // Its init waits for a permit, so that its timeout is extended.
    let custom = Custom::<0>::new()
        .init_timeout(Duration::MAX)
        .teardown_timeout(Duration::MAX)
        .init(|cx| async move {
            drop(cx.dial().await);
            sleep(secs(1)).await;
            Ok(())
        });
    let cache = builder(&world, &source)
        .resource(custom)
        .configure(|options| {
            options.dial.per_second = 1;
            options.source.linger = Duration::MAX;
            options.source.higher_first = Duration::MAX;
            options.end.replace_wait = Duration::MAX;
            options.retry.forget_after = Duration::MAX;
            options.health.authenticate_every = Duration::MAX;
            options.health.stall_after = Duration::MAX;
            options.brake.up_since = Duration::MAX;
            options.brake.release_after = Duration::MAX;
        })
        .start()
        .unwrap();
    let mut events = cache.subscribe().unhealthy_for(Duration::MAX);
    cache.wait_for(&key("a"), Duration::MAX).await.unwrap();
    assert!(cache.wait_for_start(Duration::MAX).await.unwrap());
    world.set("a", Answers::Never);
    sleep(secs(60)).await;
    assert_eq!(cache.status(), EngineStatus::Running);
    while let Some(Some(event)) = events.next().now_or_never() {
        assert!(!event.changes().contains(Changes::UNHEALTHY));
    }
    cache.shutdown().await.unwrap();
    assert!(matches!(
        cache.wait_for(&key("a"), Duration::MAX).await,
        Err(WaitError::NotRunning(_))
    ));
}

#[tokio::test]
async fn a_shutdown_without_a_limit_is_a_mistake() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let mistakes = builder(&world, &source)
        .configure(|options| options.end.shutdown = Duration::MAX)
        .start()
        .unwrap_err();
    assert!(mistakes.to_string().contains("end.shutdown"), "{mistakes}");
}
