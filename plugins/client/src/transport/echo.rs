//! Our token in what a server says, which may show it as it came or encoded: a proxy prints the heads that it was sent, in its own way
//! (rule 19).

use std::{borrow::Cow, fmt::Write};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What stands in place of it.
const HIDDEN: &str = "[our token]";
/// A shorter form stands in any text.
const LEAST: usize = 8;
/// RFC 3986, 2.3: what most encoders leave as it is.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Every form of one token. Made where something is shown, and not kept: a token is long.
pub(super) struct Echo(Vec<String>);

impl Echo {
    pub(super) fn of(token: Option<&str>) -> Self {
        let token = token.filter(|token| !token.is_empty());
        Self(token.map(forms).unwrap_or_default())
    }

    pub(super) fn is_in(&self, said: &str) -> bool {
        self.0.iter().any(|form| said.contains(form))
    }

    pub(super) fn hidden<'a>(&self, said: &'a str) -> Cow<'a, str> {
        let mut said = Cow::Borrowed(said);
        for form in &self.0 {
            if said.contains(form) {
                said = Cow::Owned(said.replace(form, HIDDEN));
            }
        }
        said
    }
}

fn forms(token: &str) -> Vec<String> {
    let bytes = token.as_bytes();
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let mut forms = vec![
        token.escape_default().to_string(),
        format!("{bytes:?}").trim_matches(['[', ']']).to_owned(),
        hex.to_uppercase(),
        hex,
    ];
    for set in [NON_ALPHANUMERIC, RESERVED] {
        let encoded = percent_encode(bytes, set).to_string();
        forms.extend([lower(&encoded), encoded]);
    }
    // At each of the three places of a group where it may begin.
    for skipped in 0..bytes.len().min(3) {
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let mut encoded = engine.encode(&bytes[skipped..]);
            // The last letter depends on what follows.
            encoded.pop();
            forms.push(encoded);
        }
    }
    forms.retain(|form| form.len() >= LEAST);
    forms.insert(0, token.to_owned());
    forms
}

/// `%2F` as `%2f`.
fn lower(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        out.push('%');
        out.push_str(&code.to_lowercase());
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_hidden_in_every_form() {
        let token = "s3cret/T0KEN+of~the=test";
        let echo = Echo::of(Some(token));
        let bearer = format!("Bearer {token}, and more");
        let hex = bearer.bytes().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let mut said = vec![
            bearer.clone(),
            format!("{:?}", bearer.as_bytes()),
            hex.to_uppercase(),
            hex,
            percent_encode(bearer.as_bytes(), NON_ALPHANUMERIC).to_string(),
            "s3cret%2FT0KEN%2Bof~the%3Dtest".into(),
            "s3cret%2fT0KEN%2bof~the%3dtest".into(),
        ];
        for before in ["", "x", "xx"] {
            said.push(STANDARD_NO_PAD.encode(format!("{before}{bearer}")));
            said.push(URL_SAFE_NO_PAD.encode(format!("{before}{bearer}")));
        }
        for said in said {
            assert!(echo.is_in(&said), "{said}");
            let hidden = echo.hidden(&said);
            assert!(hidden.contains(HIDDEN) && !echo.is_in(&hidden), "{hidden}");
        }
    }

    #[test]
    fn nothing_else_is_hidden() {
        for token in [None, Some(""), Some("s3cret-and-more")] {
            let said = "[-]etcd failed: reason withheld, 115, 51 and s3cret";
            assert_eq!(Echo::of(token).hidden(said), said);
        }
        // What is as short as that is no secret, and its encodings are words.
        assert_eq!(
            Echo::of(Some("x1")).hidden("eD, eDE and 7831"),
            "eD, eDE and 7831"
        );
    }
}
