//! The proxy through which a cluster is reached, as `proxy-url` of a kubeconfig names it.

use std::fmt;

use http::Uri;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};

use super::{AccessError, Fingerprint};

/// A proxy: `http`, `https` or `socks5`. Prints without its user and password.
#[derive(Clone)]
pub struct Proxy {
    url: Uri,
    user: Option<ProxyUser>,
    fingerprint: Fingerprint,
}

/// Who we are to a proxy.
#[derive(Clone)]
pub struct ProxyUser {
    name: String,
    password: SecretString,
}

impl Proxy {
    /// Scheme, host and port, without user info.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// Who we are to it, if it asks.
    pub fn user(&self) -> Option<&ProxyUser> {
        self.user.as_ref()
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(super) fn parse(text: &SecretString) -> Result<Self, AccessError> {
        let text = text.expose_secret();
        let (scheme, rest) = text.split_once("://").ok_or(AccessError::Proxy)?;
        if !["http", "https", "socks5", "socks5h"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return Err(AccessError::Proxy);
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // Of several `@` the last one ends the user info, as in a URL.
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        };
        let url = format!("{scheme}://{host}").parse::<Uri>();
        let url = url.map_err(|_| AccessError::Proxy)?;
        if url.host().is_none_or(str::is_empty)
            || url.path() != "/"
            || url.query().is_some()
            || host.contains('#')
        {
            return Err(AccessError::Proxy);
        }
        Ok(Self {
            url,
            user: user.map(ProxyUser::parse).transpose()?,
            fingerprint: Fingerprint::of([text]),
        })
    }
}

impl ProxyUser {
    /// Its name, decoded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its password, decoded; it may be empty.
    pub fn password(&self) -> &SecretString {
        &self.password
    }

    fn parse(text: &str) -> Result<Self, AccessError> {
        let decoded = |part: &str| {
            let text = percent_decode_str(part).decode_utf8();
            text.map(String::from).map_err(|_| AccessError::Proxy)
        };
        let (name, password) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self {
            name: decoded(name)?,
            password: decoded(password)?.into(),
        })
    }
}

impl PartialEq for Proxy {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for Proxy {}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.url.authority().map_or("", |all| all.as_str());
        write!(
            f,
            "{}://{authority}",
            self.url.scheme_str().unwrap_or_default()
        )
    }
}

impl fmt::Debug for ProxyUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyUser(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Proxy, AccessError> {
        Proxy::parse(&text.into())
    }

    #[test]
    fn user_and_password_are_decoded_and_never_print() {
        let proxy = parse("http://me:s%40cret@proxy:3128/").unwrap();
        let user = proxy.user().unwrap();
        assert_eq!(
            (user.name(), user.password().expose_secret()),
            ("me", "s@cret")
        );
        assert_eq!(proxy.url().to_string(), "http://proxy:3128/");
        let text = format!("{proxy:?} {user:?}");
        assert!(
            text.contains("proxy:3128") && !text.contains("cret") && !text.contains("me:"),
            "{text}"
        );
    }

    #[test]
    fn another_password_is_another_proxy() {
        assert_ne!(
            parse("http://a:b@p").unwrap(),
            parse("http://a:c@p").unwrap()
        );
        assert_eq!(parse("socks5://p").unwrap(), parse("socks5://p").unwrap());
    }

    #[test]
    fn what_is_no_proxy_is_refused() {
        for text in [
            "proxy:3128",
            "ftp://proxy",
            "http://",
            "http://proxy/path",
            "http://proxy?q",
            "http://proxy/#f",
        ] {
            assert_eq!(parse(text).unwrap_err(), AccessError::Proxy, "{text}");
        }
    }
}
