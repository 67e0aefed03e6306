//! Servers and proxies as a document writes them. Whoever writes one may mean to be misread: a host has one reading here, or none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clustercache::ClusterAccess;
use http::Uri;

/// Scheme, host and port of a proxy; `None` where the URL is not one. It is read as it will be when it is dialled, so that no spelling
/// means one proxy here and another there.
pub(crate) fn proxy(url: &str) -> Option<(String, String, u16)> {
    let access = ClusterAccess::builder("https://any")
        .proxy(url)
        .build()
        .ok()?;
    let url = access.endpoint().proxy()?.url();
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let port = match (has_port(url), scheme.as_str()) {
        (true, _) => url.port_u16().filter(|port| *port != 0)?,
        (false, "http") => 80,
        (false, "https") => 443,
        (false, _) => 1080,
    };
    Some((scheme, url.host()?.to_ascii_lowercase(), port))
}

/// Whether something stands behind the host, be it no port.
pub(crate) fn has_port(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    !authority.ends_with(host)
}

/// A host that is no name and no address that everybody reads alike: `0x7f.1`, `2130706433`, `0177.0.0.1`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Odd;

/// The address that a URL's host is, if it is one and no name.
pub(crate) fn literal(host: &str) -> Result<Option<IpAddr>, Odd> {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or(Odd)?;
        return inner
            .parse::<Ipv6Addr>()
            .map(|ip| Some(ip.into()))
            .map_err(|_| Odd);
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    // As browsers have it: what ends in a number is an address, whatever a resolver would make of it.
    let hex = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    let number = match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    };
    if !number {
        return Ok(None);
    }
    // Four decimal numbers without leading zeros; nothing else parses.
    name.parse::<Ipv4Addr>()
        .map(|ip| Some(ip.into()))
        .map_err(|_| Odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_a_name_or_odd() {
        for host in [
            "2852039166",
            "0xA9FEA9FE",
            "0251.0376.0251.0376",
            "169.254.43518",
            "0xa9.254.169.254",
            "1.2.3.4.5",
            "a.1",
            "1.0x",
            "[fe80::1%1]",
            "[1",
        ] {
            assert_eq!(literal(host), Err(Odd), "{host}");
        }
        for host in [
            "169.254.169.254",
            "169.254.169.254.",
            "[::ffff:169.254.169.254]",
            "[fe80::1]",
        ] {
            assert!(matches!(literal(host), Ok(Some(_))), "{host}");
        }
        for host in [
            "localhost",
            "a.example.com",
            "10.0.0.1.example.com",
            "0x7g",
            "beef",
            "1a",
        ] {
            assert_eq!(literal(host), Ok(None), "{host}");
        }
    }

    #[test]
    fn a_proxy_is_its_scheme_host_and_port() {
        for url in ["http://p:80", "HTTP://P", "http://user:pw@p/"] {
            assert_eq!(proxy(url), Some(("http".into(), "p".into(), 80)), "{url}");
        }
        let socks = Some(("socks5".into(), "p".into(), 1080));
        assert_eq!(proxy("socks5://p"), socks);
        for url in [
            "p:80",
            "ftp://p",
            "http://",
            "http://p:0",
            "http://p:",
            "http://p/a",
            "http://p?a",
            "http://p#a",
            "http://p:99999",
            "",
        ] {
            assert_eq!(proxy(url), None, "{url}");
        }
    }
}
