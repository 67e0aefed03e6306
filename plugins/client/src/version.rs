//! The version that an API server says it has, read as tolerantly as those in the field need it: `32+` is a minor version.

use std::fmt;

use serde::Deserialize;

/// The most that is kept of a text of the document, in characters.
const MOST: usize = 128;

/// What an API server says at `/version`. Its texts are the server's: control characters in them are escaped, and they are cut at 128
/// characters.
///
/// ```
/// use clustercache_client::ServerVersion;
///
/// fn has_in_place_resize(version: &ServerVersion) -> bool {
///     (version.major, version.minor) >= (1, 35)
/// }
/// # let _ = has_in_place_resize;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ServerVersion {
    /// `1`.
    pub major: u32,
    /// `37`; also where the server says `37+`, as clouds do.
    pub minor: u32,
    /// `v1.37.2`, `v1.37.2-gke.1042001`.
    pub git_version: Box<str>,
    /// `linux/amd64`.
    pub platform: Box<str>,
}

impl ServerVersion {
    /// `None` if no version is to be read out of it, however tolerantly. `hidden` takes out of its texts what must not be shown.
    pub(crate) fn parse(body: &[u8], hidden: impl Fn(&str) -> String) -> Option<Self> {
        let said: Said = serde_json::from_slice(body).ok()?;
        let (major, minor) = match (number(&said.major), number(&said.minor)) {
            (Some(major), Some(minor)) => (major, minor),
            // Some servers say it only once.
            _ => of_git(&said.git_version)?,
        };
        Some(Self {
            major,
            minor,
            git_version: shown(&hidden(&said.git_version)),
            platform: shown(&hidden(&said.platform)),
        })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.git_version.is_empty() {
            return write!(f, "v{}.{}", self.major, self.minor);
        }
        f.write_str(&self.git_version)
    }
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Said {
    major: String,
    minor: String,
    git_version: String,
    platform: String,
}

/// The number with which `text` begins.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

fn of_git(version: &str) -> Option<(u32, u32)> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let (major, rest) = version.split_once('.')?;
    Some((major.parse().ok()?, number(rest)?))
}

fn shown(text: &str) -> Box<str> {
    let text: String = text.chars().take(MOST).collect();
    text.escape_debug().to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Option<(u32, u32, String)> {
        let version = ServerVersion::parse(json.as_bytes(), str::to_owned)?;
        Some((version.major, version.minor, version.to_string()))
    }

    #[test]
    fn versions_of_the_field_are_read() {
        for (json, expected) in [
            (
                r#"{"major":"1","minor":"32+","gitVersion":"v1.32.4-eks-abc","platform":"linux/amd64","new":{}}"#,
                (1, 32, "v1.32.4-eks-abc"),
            ),
            (r#"{"major":"1","minor":"37"}"#, (1, 37, "v1.37")),
            (
                r#"{"major":"","minor":"","gitVersion":"v1.30.0+k3s1"}"#,
                (1, 30, "v1.30.0+k3s1"),
            ),
            (r#"{"gitVersion":"1.29"}"#, (1, 29, "1.29")),
        ] {
            let (major, minor, shown) = parse(json).unwrap();
            assert_eq!((major, minor, &*shown), expected, "{json}");
        }
    }

    #[test]
    fn what_says_no_version_is_none() {
        for json in [
            "",
            "{}",
            "<html>",
            r#"{"kind":"Status"}"#,
            r#"{"major":"one","minor":"two","gitVersion":"three"}"#,
            r#"{"major":"99999999999","minor":"1"}"#,
            r#"{"major":1,"minor":2}"#,
        ] {
            assert_eq!(parse(json), None, "{json}");
        }
    }

    #[test]
    fn what_a_server_says_is_escaped_and_cut() {
        let json = format!(
            r#"{{"major":"1","minor":"2","gitVersion":"v1\u001b[31m\n{}"}}"#,
            "x".repeat(1_000_000)
        );
        let version = ServerVersion::parse(json.as_bytes(), str::to_owned).unwrap();
        assert!(version.git_version.starts_with(r"v1\u{1b}[31m\nx"));
        assert!(version.git_version.len() < 2 * MOST);
    }
}
