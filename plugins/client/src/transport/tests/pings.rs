//! Pings prove death only: one that is not answered has the server probed, one that is says nothing. While nobody waits there is none.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    io::DuplexStream,
    time::{sleep, timeout},
};

use super::{
    frames::{Peer, WINDOW, frame},
    rig::Heard,
};
use crate::transport::http2::{Http2, Keeper, Pings};

const AFTER: Duration = Duration::from_secs(1);

/// Over a pipe, in simulated time.
async fn begin() -> (Http2, Keeper<DuplexStream>, Peer<DuplexStream>, Arc<Heard>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let heard = Arc::<Heard>::default();
    let pings = Pings {
        after: AFTER,
        signs: heard.clone(),
    };
    let begun = async { Http2::begin(ours, pings, || ()).await.unwrap() };
    let ((link, keeper), peer) = tokio::join!(begun, Peer::begin(theirs, &[]));
    (link, keeper, peer, heard)
}

#[tokio::test(start_paused = true)]
async fn a_ping_that_is_not_answered_is_one_doubt() {
    let (link, keeper, mut peer, heard) = begin().await;
    peer.pongs = false;
    link.load.calls.store(1, Relaxed);
    let served = async { tokio::join!(keeper, peer.drain()) };
    timeout(AFTER * 10, served).await.unwrap_err();
    assert_eq!((peer.pings, heard.all()), (1, (0, 0, 1)));
    assert!(link.is_mute());
}

#[tokio::test(start_paused = true)]
async fn a_ping_that_is_answered_says_nothing() {
    let (link, keeper, mut peer, heard) = begin().await;
    link.load.calls.store(1, Relaxed);
    let served = async { tokio::join!(keeper, peer.drain()) };
    timeout(AFTER * 10, served).await.unwrap_err();
    assert!(peer.pings > 1, "{}", peer.pings);
    assert_eq!(heard.all(), (0, 0, 0));
    assert!(!link.is_mute());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_nobody_else_would_miss_is_asked_after_now_and_then() {
    for pongs in [true, false] {
        let (link, keeper, mut peer, heard) = begin().await;
        peer.pongs = pongs;
        link.load.watches.store(1, Relaxed);
        let served = async { tokio::join!(keeper, peer.drain()) };
        timeout(AFTER * 105, served).await.unwrap_err();
        let pings = if pongs { 2..=10 } else { 1..=1 };
        assert!(pings.contains(&peer.pings), "{}", peer.pings);
        assert_eq!(heard.all(), (0, 0, usize::from(!pongs)));
        assert_eq!(link.is_mute(), !pongs);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_beside_a_watch_is_asked_after_soon() {
    let (link, keeper, mut peer, heard) = begin().await;
    peer.pongs = false;
    link.load.watches.store(1, Relaxed);
    let call = async {
        sleep(AFTER * 2).await;
        link.load.calls.store(1, Relaxed);
        peer.send(&frame(WINDOW, 0, 0, &[0, 0, 0, 1])).await;
        peer.drain().await;
    };
    let served = async { tokio::join!(keeper, call) };
    timeout(AFTER * 6, served).await.map(drop).unwrap_err();
    assert_eq!((peer.pings, heard.all()), (1, (0, 0, 1)));
}

#[tokio::test(start_paused = true)]
async fn there_is_no_ping_while_anything_comes_or_nobody_waits() {
    for (calls, comes) in [(1, true), (0, false)] {
        let (link, keeper, mut peer, heard) = begin().await;
        peer.pongs = false;
        link.load.calls.store(calls, Relaxed);
        let speak = async {
            loop {
                if timeout(AFTER / 2, peer.next()).await.is_err() && comes {
                    peer.send(&frame(WINDOW, 0, 0, &[0, 0, 0, 1])).await;
                }
            }
        };
        let served = async { tokio::join!(keeper, speak) };
        timeout(AFTER * 10, served).await.map(drop).unwrap_err();
        assert_eq!((peer.pings, heard.all()), (0, (0, 0, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_later_shows_that_a_mute_connection_is_none() {
    let (link, keeper, mut peer, _) = begin().await;
    peer.pongs = false;
    link.load.calls.store(1, Relaxed);
    let mut keeper = Box::pin(keeper);
    timeout(AFTER * 5, &mut keeper).await.unwrap_err();
    assert!(link.is_mute());
    peer.send(&frame(WINDOW, 0, 0, &[0, 0, 0, 1])).await;
    tokio::select! {
        () = keeper => unreachable!("the peer is there"),
        () = sleep(Duration::from_millis(1)) => (),
    }
    assert!(!link.is_mute());
}
