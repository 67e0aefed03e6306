//! Why a document, or one of its contexts, is refused: where, what, and what to do. It names fields and never quotes a value, so
//! that nothing secret is in it (rule 19 of the design).

use std::{fmt, sync::Arc};

use clustercache::AccessError;

use crate::{ExecFailure, FileProblemReason};

/// Why a document or one of its contexts is refused. Safe to print and to keep.
///
/// ```
/// use clustercache_kubeconfig::{Kubeconfig, Policy, RefusalReason};
///
/// let refusal = Kubeconfig::parse(b"clusters: []\ncolour: red\n", &Policy::tenant()).unwrap_err();
/// assert_eq!((refusal.path(), refusal.reason()), ("colour", &RefusalReason::UnknownField));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    place: Place,
    reason: RefusalReason,
}

impl Refusal {
    /// The path of the field, such as `users[2].user.exec`; empty where the document as a whole is meant.
    pub fn path(&self) -> &str {
        &self.place.path
    }

    /// The name of the document, where it has one: its file.
    pub fn document(&self) -> Option<&str> {
        self.place.origin.as_deref()
    }

    /// What was wrong with it.
    pub fn reason(&self) -> &RefusalReason {
        &self.reason
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// What was wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    // The document as a whole.
    /// It is larger than its policy reads.
    #[error("larger than {limit} bytes; leave out the contexts that are not needed")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// It is not text.
    #[error("not UTF-8; write it as plain text")]
    NotUtf8,
    /// There is nothing in it.
    #[error("empty; it must have clusters, users and contexts")]
    Nothing,
    /// It is neither YAML nor JSON.
    #[error("not YAML at line {line}, column {column}; mend it there, or just before")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// It is nested deeper than any kubeconfig.
    #[error("nested deeper than {limit} levels, which no kubeconfig is; write it flatter")]
    TooDeep {
        /// In levels.
        limit: usize,
    },
    /// It has more values than are read.
    #[error("more than {limit} values; leave out the contexts that are not needed")]
    TooMany {
        /// Scalars, lists and mappings together.
        limit: usize,
    },
    /// It refers to another place of itself.
    #[error("a YAML alias; write out what it stands for, as `kubectl config view --raw` does")]
    Alias,
    /// It says of which type a value is.
    #[error("a YAML tag; leave it out")]
    Tag,
    /// There is a second document behind the first.
    #[error("a second document; leave one, without a `---` after it")]
    SecondDocument,
    /// It is some other Kubernetes object, or a version that is not known.
    #[error("must be `{expected}`; give a kubeconfig")]
    NotAKubeconfig {
        /// What it must be.
        expected: &'static str,
    },

    // Any field.
    /// A field stands twice in one mapping.
    #[error("stands twice in its mapping; leave one")]
    DuplicateField,
    /// Two entries of a list have one name.
    #[error("another entry of the list has the same name; rename one")]
    DuplicateName,
    /// A field that is not known is refused, whatever it says.
    #[error("not a field that is known here; leave it out")]
    UnknownField,
    /// A field is of another type than it must be.
    #[error("must be {expected}")]
    WrongType {
        /// What it must be.
        expected: &'static str,
    },
    /// A field is needed and not there.
    #[error("missing; give it")]
    Missing,
    /// A field is there and says nothing.
    #[error("empty; give it a value or leave it out")]
    Empty,
    /// It names an entry that is not there.
    #[error("names {what} that is not there; add it or correct the name")]
    Dangling {
        /// `a cluster`, `a user` or `a context`.
        what: &'static str,
    },

    /// It and another field cannot both be there.
    #[error("`{with}` is given too; leave one of them")]
    Conflict {
        /// The other field.
        with: &'static str,
    },

    // Fields that are known, and dangerous.
    /// A program that prints a credential.
    #[error(
        "programs are run only for a file that its operator names, and by their own names: give `KubeconfigFile` a policy like \
         `Policy::operator().allow_exec([\"aws\"])`; else give the user a token or a client certificate inline"
    )]
    Exec,
    /// A credential plug-in that Kubernetes itself has removed.
    #[error(
        "auth providers are gone from Kubernetes, and some run programs; give the user a token or a client certificate inline, or the \
         vendor's program as `exec`"
    )]
    AuthProvider,
    /// A file's path.
    #[error(
        "files are read only for a file that its operator names, by `KubeconfigFile` with `Policy::operator()`; else give what is in it \
         inline as `{inline}` (`kubectl config view --flatten --raw` does that)"
    )]
    File {
        /// The field that takes the content itself.
        inline: &'static str,
    },
    /// A proxy.
    #[error(
        "a proxy would see where we go and is dialled in place of the server; allow it by name, \
         `Policy::tenant().allow_proxy([\"http://proxy.example.com:3128\"])`, or leave it out"
    )]
    Proxy,
    /// The server's certificate would not be looked at.
    #[error(
        "the server must prove who it is before a credential goes to it; leave it out and give `certificate-authority-data`, or allow it \
         for an operator's document with `Policy::operator().allow_insecure_skip_tls_verify()`"
    )]
    InsecureSkipTlsVerify,
    /// A user who acts as another.
    #[error(
        "nobody acts as another unless that is allowed; leave it out and give the credential of that user, or allow it for an operator's \
         document with `Policy::operator().allow_impersonation()`"
    )]
    Impersonation,
    /// A name and password.
    #[error(
        "Kubernetes has no basic authentication any more; leave it out and give a token or a client certificate"
    )]
    Password,
    /// Compression switched off.
    #[error("what a server sends is decompressed within limits or not at all; leave it out")]
    DisableCompression,
    /// Preferences of a command line.
    #[error("preferences are of use to command lines only; leave it out or empty")]
    Preferences,
    /// Somebody's extensions.
    #[error("extensions are not read, so they are not accepted; leave it out or empty")]
    Extensions,

    // What stands elsewhere, and is allowed.
    /// A file that the document names cannot be taken.
    #[error("the file that it names {0}")]
    Unread(#[source] Arc<FileProblemReason>),
    /// A program that was run gave no credential.
    #[error("`{}` gave no credential: {failure}", program.escape_debug())]
    ExecFailed {
        /// As it is allowed.
        program: String,
        /// What was wrong.
        #[source]
        failure: ExecFailure,
    },
    /// A program of another protocol.
    #[error(
        "must be client.authentication.k8s.io/v1 or v1beta1; have the program's vendor write the user again (`aws eks update-kubeconfig`, \
         say)"
    )]
    ExecVersion,
    /// A program that wants to talk to somebody.
    #[error("nobody is there to answer a program; give `Never` or `IfAvailable`")]
    Interactive,

    // Values.
    /// A server without a scheme.
    #[error("has no scheme; give a URL like https://10.0.0.1:6443")]
    NoScheme,
    /// A server with a scheme that is not `https`.
    #[error(
        "not https, so a credential would go unprotected; give a URL like https://10.0.0.1:6443, or allow http for an operator's document \
         with `Policy::operator().allow_http()`"
    )]
    NotHttps,
    /// A server with a fragment, or a port that is none.
    #[error("has a fragment, or a port that is none; give scheme, host, port and path only")]
    ServerParts,
    /// A server whose host ends in a number, and is no IPv4 address.
    #[error(
        "has a host that some take for an address and others do not; write an IPv4 address as four decimal numbers"
    )]
    OddAddress,
    /// A server at an address that the policy does not let anybody dial.
    #[error(
        "an address that its policy forbids (loopback, link-local and such, of a tenant's); give one that the cluster is reached at from \
         everywhere, or allow it with `Policy::tenant().addresses(..)`"
    )]
    ForbiddenAddress,
    /// A proxy that is none.
    #[error("not a proxy's URL; give scheme (http, https or socks5), host and port only")]
    ProxyUrl,
    /// A TLS name that is none.
    #[error("neither a DNS name nor an IP address; give the name in the server's certificate")]
    NotAServerName,
    /// Data that must be base64 and is not.
    #[error("not base64; encode the PEM file as `base64 -w0` does")]
    Base64,
    /// A user without a credential.
    #[error("has no credential; give a token, or a client certificate and its key")]
    NoCredential,
    /// The parts are well-formed, and make no access.
    #[error("{0}")]
    Access(#[source] Arc<AccessError>),
}

/// Where in which document we are. Grows downwards, and turns a reason into a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    origin: Option<Arc<str>>,
    path: String,
}

impl Place {
    pub(crate) fn root(origin: Option<&Arc<str>>) -> Self {
        Self {
            origin: origin.cloned(),
            path: String::new(),
        }
    }

    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            origin: self.origin.clone(),
            path: format!("{}{dot}{}", self.path, shown(name)),
        }
    }

    pub(crate) fn item(&self, index: usize) -> Self {
        Self {
            origin: self.origin.clone(),
            path: format!("{}[{index}]", self.path),
        }
    }

    pub(crate) fn refuse(&self, reason: RefusalReason) -> Refusal {
        Refusal {
            place: self.clone(),
            reason,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str("the document")?;
        } else {
            f.write_str(&self.path)?;
        }
        match &self.origin {
            Some(origin) => write!(f, " in {}", origin.escape_debug()),
            None => Ok(()),
        }
    }
}

/// A name of a field as it may be shown: one that looks like none (a whole token, say, whose line lost its field) is only measured. No field
/// that is known has a digit, and hardly a token has none.
fn shown(name: &str) -> String {
    let usual = |byte: u8| byte.is_ascii_alphabetic() || b"-_.<".contains(&byte);
    if (1..=32).contains(&name.len()) && name.bytes().all(usual) {
        name.to_owned()
    } else {
        format!("<a name of {} bytes>", name.len())
    }
}
