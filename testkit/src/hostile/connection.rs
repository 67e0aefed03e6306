//! One connection of a hostile server, from its first byte to its end. All its tasks end with it.

use std::sync::Arc;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{
    Behaviour, Inner, Seen,
    behaviour::Speaks,
    http1, http2,
    http2::Windows,
    player::{Out, Player, Protocol},
    wire::{Switch, Wire},
};

/// What the parts of one connection share.
pub(super) struct Connection {
    pub(super) inner: Arc<Inner>,
    pub(super) number: u64,
    pub(super) switch: Arc<Switch>,
}

/// A connection that is counted as open.
struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counting.change(|counts| counts.open -= 1);
    }
}

pub(super) async fn serve(inner: Arc<Inner>, tcp: TcpStream, number: u64) {
    let open = Open(Arc::clone(&inner));
    let behaviour = Arc::clone(&inner.behaviour.lock());
    let switch = Arc::new(Switch::new(inner.ended.child_token()));
    let wire = Wire::new(
        tcp,
        number,
        &behaviour,
        Arc::clone(&inner),
        Arc::clone(&switch),
    );
    let ended = switch.ended.clone();
    let connection = Arc::new(Connection {
        inner,
        number,
        switch,
    });
    // What it spawned ends with it, and with that its socket.
    let end = ended.clone().drop_guard();
    ended
        .run_until_cancelled(begin(connection, wire, &behaviour))
        .await;
    drop(end);
    // Only now, so that whoever waits for the count finds the socket closed.
    drop(open);
}

async fn begin(connection: Arc<Connection>, wire: Wire, behaviour: &Behaviour) {
    let tls = match behaviour.speaks {
        Speaks::Tcp => return speak(connection, wire, behaviour).await,
        Speaks::Http1 => &connection.inner.http1,
        Speaks::Http2 => &connection.inner.http2,
    };
    let mut config = match tls.config() {
        Ok(config) => config,
        Err(error) => return tracing::warn!(%error, "a hostile server has no certificate"),
    };
    if let Some(shown) = &connection.inner.shown {
        Arc::make_mut(&mut config).cert_resolver = shown.clone();
    }
    match TlsAcceptor::from(config).accept(wire).await {
        Ok(stream) => {
            let counting = &connection.inner.counting;
            counting.change(|counts| counts.handshakes += 1);
            speak(connection, stream, behaviour).await;
        }
        Err(error) => tracing::debug!(%error, "a hostile server's TLS failed"),
    }
}

async fn speak<S>(connection: Arc<Connection>, stream: S, behaviour: &Behaviour)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut reader, writer) = tokio::io::split(stream);
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let writing = write(writer, receiver, Arc::clone(&connection.switch));
    let protocol = match behaviour.speaks {
        Speaks::Http2 => Protocol::Http2(Arc::new(Windows::default())),
        Speaks::Http1 | Speaks::Tcp => Protocol::Http1,
    };
    let player = Player { sender, protocol };
    let reading = async {
        match behaviour.speaks {
            Speaks::Tcp => {
                let steps = behaviour.greeting.clone();
                tokio::join!(player.play(steps, 0), drain(&mut reader));
            }
            Speaks::Http1 => http1::serve(&connection, &mut reader, player, behaviour).await,
            Speaks::Http2 => http2::serve(&connection, &mut reader, player, behaviour).await,
        }
    };
    // The writer outlives no reader: whoever has closed reads nothing.
    tokio::select! {
        () = reading => (),
        () = writing => (),
    }
}

/// Reads until there is no more to read.
pub(super) async fn drain(reader: &mut (impl AsyncRead + Unpin)) {
    let mut room = vec![0; 16 << 10];
    while reader.read(&mut room).await.is_ok_and(|read| read > 0) {}
}

/// Writes what the players say, until writing fails.
async fn write(
    mut stream: impl AsyncWrite + Unpin,
    mut said: tokio::sync::mpsc::Receiver<Out>,
    switch: Arc<Switch>,
) {
    let mut closed = false;
    while let Some(out) = said.recv().await {
        let done = match out {
            Out::Bytes(_) if closed => Ok(()),
            Out::Bytes(bytes) => match stream.write_all(&bytes).await {
                Ok(()) if said.is_empty() => stream.flush().await,
                other => other,
            },
            Out::HalfClose => {
                closed = true;
                stream.shutdown().await
            }
            Out::Cut => {
                closed = true;
                switch.drop_output();
                stream.shutdown().await
            }
            Out::Reset => return switch.reset(),
        };
        if done.is_err() {
            return;
        }
    }
    // No player is left; the reader decides when it is over.
    std::future::pending::<()>().await;
}

impl Connection {
    /// Counts a request, and says what it gets.
    pub(super) fn seen(&self, seen: &Seen) -> Vec<super::Step> {
        self.inner.counting.request(&seen.path);
        let behaviour = Arc::clone(&self.inner.behaviour.lock());
        behaviour.steps(seen)
    }
}
