//! The way up to a connection: a permit, the name, TCP, TLS, HTTP. Each stage has its own deadline, and its errors say which it was.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{Connect, TlsConnector, client::TlsStream};

use super::{
    error::{TransportError, Wait},
    hooks::Permit,
    silent::Silent,
    target::Target,
    tls::Tls,
};
use crate::Deadlines;

/// Dials until TLS is up. The permit is held until the stream has spoken HTTP, so it comes back with it.
pub(crate) async fn dial(
    target: &Target,
    tls: &Tls,
    mut permit: Box<dyn Permit>,
    deadlines: &Deadlines,
) -> Result<(TlsStream<Silent>, Box<dyn Permit>), TransportError> {
    let tcp = tokio::select! {
        biased;
        tcp = reach(target, deadlines) => tcp?,
        () = permit.evicted() => return Err(TransportError::Evicted),
    };
    let connector = TlsConnector::from(Arc::clone(&tls.config));
    let mut connect = connector.connect(tls.name.clone(), Silent::new(tcp));
    // Until the server says something, the dial can be given up for another cluster's.
    let silence = within(Wait::Tls, deadlines.tls, first_byte(&mut connect, &*permit));
    if let Some(stream) = silence.await?? {
        return Ok((stream, permit));
    }
    // Waiting for our own turn is not the server's time.
    permit.received().await;
    if let Some(silent) = connect.get_mut() {
        silent.let_through();
    }
    let stream = within(Wait::Tls, deadlines.tls, connect).await?;
    Ok((stream.map_err(TransportError::from_tls)?, permit))
}

/// A deadline that says what it was for.
pub(crate) async fn within<T>(
    stage: Wait,
    after: Duration,
    work: impl Future<Output = T>,
) -> Result<T, TransportError> {
    timeout(after, work)
        .await
        .map_err(|_| TransportError::Deadline { stage, after })
}

async fn reach(target: &Target, deadlines: &Deadlines) -> Result<TcpStream, TransportError> {
    let addresses = within(Wait::Resolve, deadlines.resolve, resolve(target)).await??;
    within(Wait::Connect, deadlines.connect, connect(&addresses)).await?
}

async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, TransportError> {
    if let Ok(address) = target.host.parse() {
        return Ok(vec![SocketAddr::new(address, target.port)]);
    }
    let unresolved = |source| TransportError::Dns {
        host: (&*target.host).into(),
        source: Arc::new(source),
    };
    let found = tokio::net::lookup_host((&*target.host, target.port)).await;
    let addresses: Vec<_> = found.map_err(unresolved)?.collect();
    if addresses.is_empty() {
        return Err(unresolved(io::Error::other("the name has no address")));
    }
    Ok(addresses)
}

/// One address after the other.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, TransportError> {
    let mut last = None;
    for &address in addresses {
        let connected = TcpStream::connect(address).await;
        match connected.and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp)) {
            Ok(tcp) => return Ok(tcp),
            Err(source) => {
                let source = Arc::new(source);
                last = Some(TransportError::Connect { address, source });
            }
        }
    }
    Err(last.expect("a name resolves to one address at least"))
}

/// Says hello and waits for the first byte. A stream only if TLS is up without one having been held back, which is not to be seen.
async fn first_byte(
    connect: &mut Connect<Silent>,
    permit: &dyn Permit,
) -> Result<Option<TlsStream<Silent>>, TransportError> {
    let mut evicted = pin!(permit.evicted());
    poll_fn(|cx| {
        if let Poll::Ready(done) = Pin::new(&mut *connect).poll(cx) {
            return Poll::Ready(done.map(Some).map_err(TransportError::from_tls));
        }
        if connect.get_ref().is_some_and(Silent::is_waiting) {
            return Poll::Ready(Ok(None));
        }
        evicted
            .as_mut()
            .poll(cx)
            .map(|()| Err(TransportError::Evicted))
    })
    .await
}
