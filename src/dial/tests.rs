use std::time::Duration;

use futures_util::FutureExt;

use super::*;

fn pool(per_second: u32, silent: usize, handshakes: usize) -> DialPool {
    DialPool::new(&DialOptions {
        per_second,
        silent,
        handshakes,
    })
}

fn key(name: &str) -> ClusterKey {
    ClusterKey::named(name)
}

fn now(pool: &DialPool, name: &str, failures: u32) -> Option<DialPermit> {
    pool.permit(&key(name), failures).now_or_never()
}

#[tokio::test]
async fn a_place_goes_to_the_next_when_its_permit_is_dropped() {
    let pool = pool(1_000, 1, 1);
    let first = now(&pool, "a", 0).unwrap();
    let b = key("b");
    let mut second = Box::pin(pool.permit(&b, 0));
    assert!(second.as_mut().now_or_never().is_none());
    assert_eq!((pool.counts().waiting, pool.counts().silent), (1, 1));
    drop(first);
    let second = second.await;
    assert_eq!((pool.counts().waiting, pool.counts().silent), (0, 1));
    drop(second);
    assert_eq!((pool.counts().waiting, pool.counts().silent), (0, 0));
    assert!(pool.0.lock().wakes.is_empty());
}

#[tokio::test]
async fn a_dropped_wait_leaves_no_trace() {
    let pool = pool(1_000, 1, 1);
    let first = now(&pool, "a", 0).unwrap();
    assert!(now(&pool, "b", 0).is_none());
    assert_eq!(pool.counts().waiting, 0);
    drop(first);
    assert_eq!(pool.counts().silent, 0);
    assert!(pool.0.lock().wakes.is_empty());
}

#[tokio::test]
async fn a_silent_place_is_given_back_before_a_handshake_place_is_waited_for() {
    let pool = pool(1_000, 1, 1);
    let mut first = now(&pool, "a", 0).unwrap();
    first.received().await;
    assert_eq!((pool.counts().silent, pool.counts().handshakes), (0, 1));
    let mut second = now(&pool, "b", 0).unwrap();
    assert!(second.received().now_or_never().is_none());
    assert_eq!((pool.counts().silent, pool.counts().handshakes), (0, 1));
    let third = now(&pool, "c", 0).unwrap();
    drop(first);
    second.received().await;
    assert_eq!((pool.counts().silent, pool.counts().handshakes), (1, 1));
    drop((second, third));
    assert_eq!((pool.counts().silent, pool.counts().handshakes), (0, 0));
}

#[tokio::test]
async fn a_new_cluster_evicts_the_oldest_silent_dial_of_the_one_that_failed_most() {
    let pool = pool(1_000, 3, 1);
    let once = now(&pool, "once", 1).unwrap();
    let older = now(&pool, "often", 5).unwrap();
    let newer = now(&pool, "often", 5).unwrap();
    let new = key("new");
    let mut permit = Box::pin(pool.permit(&new, 0));
    assert!(permit.as_mut().now_or_never().is_none());
    older.evicted().await;
    assert!(once.evicted().now_or_never().is_none());
    assert!(newer.evicted().now_or_never().is_none());
    assert_eq!(
        pool.counts().silent,
        3,
        "its descriptor counts until it is dropped"
    );
    drop(older);
    let _permit = permit.await;
    assert_eq!(pool.counts().silent, 3);
}

#[tokio::test]
async fn a_dial_that_has_received_bytes_is_not_evicted() {
    let pool = pool(1_000, 1, 1);
    let mut dial = now(&pool, "often", 5).unwrap();
    assert!(now(&pool, "new", 0).is_none());
    dial.received().await;
    assert!(dial.evicted().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn dials_are_paced_and_a_wait_that_nobody_polls_holds_up_nobody() {
    let pool = pool(10, 100, 1);
    let begun = Instant::now();
    let first = pool.permit(&key("a"), 0).await;
    let forgotten = key("b");
    let mut forgotten = Box::pin(pool.permit(&forgotten, 0));
    assert!(forgotten.as_mut().now_or_never().is_none());
    let mut permits = Vec::new();
    for name in ["c", "d", "e"] {
        permits.push(pool.permit(&key(name), 0).await);
    }
    assert_eq!(begun.elapsed().as_millis() / 100, 4);
    drop((first, permits));
    drop(forgotten);
    assert_eq!((pool.counts().waiting, pool.counts().silent), (0, 0));
}

#[test]
fn a_permit_may_be_dropped_outside_of_the_runtime_and_a_pool_may_outlive_it() {
    let pool = pool(1, 2, 1);
    let first = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(async {
            let first = now(&pool, "a", 0).unwrap();
            assert!(now(&pool, "b", 0).is_none());
            first
        });
    drop(first);
    let _second = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(async {
            tokio::time::timeout(Duration::from_secs(9), pool.permit(&key("b"), 0))
                .await
                .unwrap()
        });
}

#[tokio::test(start_paused = true)]
async fn dials_that_end_in_any_way_at_any_time_keep_the_bounds_and_leave_nothing() {
    for seed in 0..20 {
        let pool = Arc::new(pool(500, 8, 3));
        let dials: Vec<_> = (0..200)
            .map(|n| {
                let (pool, mut random) = (
                    Arc::clone(&pool),
                    fastrand::Rng::with_seed(seed * 1_000 + n),
                );
                let mut patience = move || Duration::from_millis(random.u64(0..500));
                tokio::spawn(async move {
                    let (key, failures) =
                        (key(&(n % 7).to_string()), u32::try_from(n % 3).unwrap());
                    let dial = async {
                        let mut permit = pool.permit(&key, failures).await;
                        assert!(pool.counts().silent <= 8);
                        tokio::select! {
                            () = permit.evicted() => return,
                            () = tokio::time::sleep(patience()) => {}
                        }
                        permit.received().await;
                        assert!(pool.counts().handshakes <= 3);
                        tokio::time::sleep(patience()).await;
                    };
                    // A third is given up on the way.
                    if n % 3 == 0 {
                        let _ = tokio::time::timeout(Duration::from_millis(n * 7), dial).await;
                    } else {
                        dial.await;
                    }
                })
            })
            .collect();
        for dial in dials {
            dial.await.unwrap();
        }
        assert_eq!(
            (
                pool.counts().waiting,
                pool.counts().silent,
                pool.counts().handshakes
            ),
            (0, 0, 0)
        );
        assert!(pool.0.lock().wakes.is_empty());
    }
}
