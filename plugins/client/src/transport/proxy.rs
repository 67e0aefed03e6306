//! The way through a proxy that the access names: by CONNECT over http or https, or by SOCKS5. The proxy's own address is judged as any
//! other. The endpoint's name is resolved by the proxy, where no address policy of ours reaches: only an endpoint that is itself an
//! address, in whatever spelling, is judged here.

use std::{
    error::Error,
    future::ready,
    io,
    net::{IpAddr, Ipv4Addr},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use clustercache::{AddressPolicy, ClusterAccess, Proxy, ProxyUser};
use futures_util::{TryFutureExt, future::BoxFuture};
use http::{HeaderValue, Uri};
use hyper_util::{
    client::legacy::connect::proxy::{SocksV5, Tunnel},
    rt::TokioIo,
};
use secrecy::{ExposeSecret, SecretString};
use tokio_rustls::TlsConnector;
use tower::{ServiceExt, service_fn};

use super::{
    Shared,
    dial::{reach, within},
    error::{TransportError, Wait},
    target::Target,
    tls::{AccessProblem, Tls, unbracketed},
};
use crate::ByteStream;

/// What a part of SOCKS5's user and password may take, in bytes (RFC 1929).
const SOCKS_MOST: usize = 255;

/// A proxy, and what it takes to use it.
pub(crate) struct Via {
    host: Box<str>,
    port: u16,
    url: Uri,
    tls: Tls,
    speaks: Speaks,
}

enum Speaks {
    Connect(Option<HeaderValue>),
    Socks5(Option<(String, SecretString)>),
}

type Asked = BoxFuture<'static, Result<TokioIo<Box<dyn ByteStream>>, Box<dyn Error + Send + Sync>>>;

impl Via {
    pub(crate) fn of(access: &ClusterAccess) -> Result<Option<Self>, AccessProblem> {
        let Some(proxy) = access.endpoint().proxy() else {
            return Ok(None);
        };
        let url = proxy.url();
        let host = url.host().unwrap_or_default();
        // The scheme of a URL is lower case.
        let (port, tls) = match url.scheme_str().unwrap_or_default() {
            "https" => (443, Tls::to_proxy(access, host)?),
            "http" => (80, Tls::Off),
            _ => (1080, Tls::Off),
        };
        Ok(Some(Self {
            host: unbracketed(host).into(),
            port: url.port_u16().unwrap_or(port),
            url: url.clone(),
            tls,
            speaks: Speaks::of(proxy)?,
        }))
    }

    /// A stream to the endpoint, on which the proxy has nothing to say any more.
    pub(crate) async fn connect(
        &self,
        shared: &Shared,
    ) -> Result<Box<dyn ByteStream>, TransportError> {
        let (target, deadlines) = (&shared.target, &shared.deadlines);
        judge(&target.host, &target.addresses)?;
        let stream = reach(shared, &self.host, self.port).await?;
        let stream = match &self.tls {
            Tls::Off => stream,
            Tls::On { config, name } => {
                let connector = TlsConnector::from(config.clone());
                let connect = connector.connect(name.clone(), stream);
                let stream = within(Wait::Proxy, deadlines.tls, connect).await?;
                Box::new(stream.map_err(|error| self.failed(error))?)
            }
        };
        let asked = self.ask(stream, target);
        within(Wait::Proxy, deadlines.connect, asked).await?
    }

    async fn ask(
        &self,
        stream: Box<dyn ByteStream>,
        target: &Target,
    ) -> Result<Box<dyn ByteStream>, TransportError> {
        let mut stream = Some(TokioIo::new(stream));
        let connected = service_fn(move |_: Uri| {
            ready(
                stream
                    .take()
                    .ok_or_else(|| io::Error::other("asked for twice")),
            )
        });
        let url = self.url.clone();
        let asked: Asked = match &self.speaks {
            Speaks::Connect(user) => {
                let mut tunnel = Tunnel::new(url, connected);
                if let Some(user) = user {
                    tunnel = tunnel.with_auth(user.clone());
                }
                Box::pin(tunnel.oneshot(target.uri()).map_err(Into::into))
            }
            Speaks::Socks5(user) => {
                let mut socks = SocksV5::new(url, connected);
                if let Some((name, password)) = user {
                    socks = socks.with_auth(name.clone(), password.expose_secret().into());
                }
                Box::pin(socks.oneshot(target.uri()).map_err(Into::into))
            }
        };
        let stream = asked.await.map_err(|error| self.failed(error))?;
        Ok(Box::new(stream.into_inner()))
    }

    fn failed(&self, error: impl Into<Box<dyn Error + Send + Sync>>) -> TransportError {
        TransportError::Proxy {
            proxy: format!("{}:{}", self.host, self.port),
            source: error.into().into(),
        }
    }
}

impl Speaks {
    fn of(proxy: &Proxy) -> Result<Self, AccessProblem> {
        let user = proxy.user();
        if let Some("http" | "https") = proxy.url().scheme_str() {
            return Ok(Self::Connect(user.map(basic).transpose()?));
        }
        let fits = |part: &str| part.len() <= SOCKS_MOST;
        match user {
            Some(user) if !fits(user.name()) || !fits(user.password().expose_secret()) => {
                Err(AccessProblem::ProxyUser)
            }
            _ => Ok(Self::Socks5(
                user.map(|user| (user.name().into(), user.password().clone())),
            )),
        }
    }
}

/// RFC 7617.
fn basic(user: &ProxyUser) -> Result<HeaderValue, AccessProblem> {
    if user.name().contains(':') {
        return Err(AccessProblem::ProxyUser);
    }
    let plain = SecretString::from(format!(
        "{}:{}",
        user.name(),
        user.password().expose_secret()
    ));
    let encoded = SecretString::from(format!(
        "Basic {}",
        BASE64_STANDARD.encode(plain.expose_secret())
    ));
    let mut value =
        HeaderValue::from_str(encoded.expose_secret()).map_err(|_| AccessProblem::ProxyUser)?;
    value.set_sensitive(true);
    Ok(value)
}

fn judge(host: &str, addresses: &AddressPolicy) -> Result<(), TransportError> {
    let Some(address) = literal(host) else {
        return Ok(());
    };
    addresses
        .check(address)
        .map_err(|source| TransportError::Forbidden {
            host: host.into(),
            source,
        })
}

/// The address that a host is, also in the spellings of `inet_aton`, by which many a proxy reads it: one to four numbers, also octal and
/// hexadecimal, of which the last fills what is left.
fn literal(host: &str) -> Option<IpAddr> {
    if let Ok(address) = host.parse() {
        return Some(address);
    }
    let numbers: Option<Vec<u32>> = host.trim_end_matches('.').split('.').map(number).collect();
    let numbers = numbers?;
    let (&last, first) = numbers.split_last()?;
    if first.len() > 3 || first.iter().any(|&number| number > 255) {
        return None;
    }
    let left = 32 - 8 * first.len();
    if u64::from(last) >> left != 0 {
        return None;
    }
    let high = first
        .iter()
        .rev()
        .zip((left..).step_by(8))
        .fold(0, |all, (&number, shift)| all | number << shift);
    Some(Ipv4Addr::from(high | last).into())
}

fn number(text: &str) -> Option<u32> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let digits = Some(digits).filter(|digits| !digits.starts_with('+'));
    u32::from_str_radix(digits?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_seen_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.0.0.1.",
        ] {
            assert_eq!(literal(host), Some(Ipv4Addr::LOCALHOST.into()), "{host}");
        }
        assert!(literal("::1").is_some());
        for host in [
            "localhost",
            "1.2.3.4.5",
            "256.1.1.1",
            "10.example",
            "",
            "0x",
            "4294967296",
        ] {
            assert_eq!(literal(host), None, "{host}");
        }
    }
}
