//! Whose document it is, and so what it may ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use clustercache::AddressPolicy;
use zeroize::Zeroizing;

use crate::address;

/// What a document may ask for. Everything that is not allowed is refused, and the refusal says what would allow it.
///
/// | a document may | tenant | operator |
/// | --- | --- | --- |
/// | have a CA, a client certificate and key, a token, inline | yes | yes |
/// | be as large as | 64 KiB | 16 MiB |
/// | name files: CA, certificate, key, token | never | yes, of what [`KubeconfigFile`](crate::KubeconfigFile) reads |
/// | be at an address of | [`AddressPolicy::tenant`], or as [`addresses`](Self::addresses) says | any, or as [`addresses`](Self::addresses) says |
/// | go through a proxy | [`allow_proxy`](Self::allow_proxy) | yes |
/// | run a program for its credential | never | [`allow_exec`](Self::allow_exec), of what [`KubeconfigFile`](crate::KubeconfigFile) reads |
/// | speak `http` | never | [`allow_http`](Self::allow_http) |
/// | skip the check of the server's certificate | never | [`allow_insecure_skip_tls_verify`](Self::allow_insecure_skip_tls_verify) |
/// | act as somebody else | never | [`allow_impersonation`](Self::allow_impersonation) |
/// | have extensions and preferences, which nobody reads | never | yes |
///
/// *Never* holds whatever a tenant's policy allows beside it; [`mistakes`](Self::mistakes) says so.
///
/// ```
/// use clustercache_kubeconfig::Policy;
///
/// assert_eq!(Policy::default(), Policy::tenant());
/// let small = Policy::tenant().max_bytes(16 * 1024);
/// let cloud = Policy::operator().allow_exec(["aws"]).exec_env("AWS_PROFILE", "fleet");
/// assert!(cloud.mistakes().is_empty());
/// # let _ = small;
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Policy {
    whose: Whose,
    max_bytes: usize,
    allowed: BTreeSet<OptIn>,
    programs: BTreeSet<String>,
    env: BTreeMap<String, Zeroizing<String>>,
    proxies: BTreeSet<String>,
    addresses: Option<AddressPolicy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Tenant,
    Operator,
}

/// What an operator allows by a call of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OptIn {
    Http,
    InsecureSkipTlsVerify,
    Impersonation,
}

impl Policy {
    /// For what another party wrote, such as what comes out of a Secret: at most 64 KiB, everything inline.
    pub const fn tenant() -> Self {
        Self::of(Whose::Tenant, 64 * 1024)
    }

    /// For a file that the operator named: at most 16 MiB, which is 3,000 contexts with a client certificate each. It may name
    /// further files and a proxy; what is more dangerous than that is for the other methods to allow.
    pub const fn operator() -> Self {
        Self::of(Whose::Operator, 16 * 1024 * 1024)
    }

    const fn of(whose: Whose, max_bytes: usize) -> Self {
        Self {
            whose,
            max_bytes,
            allowed: BTreeSet::new(),
            programs: BTreeSet::new(),
            env: BTreeMap::new(),
            proxies: BTreeSet::new(),
            addresses: None,
        }
    }

    /// The largest document that is read, in bytes.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Lets an operator's file run these programs for a credential (`exec` of a user). A command must be written in the file exactly as
    /// here. One without a slash is looked up in this process's `PATH`, in its absolute directories only; one with a slash is a path,
    /// from the file's directory if it is relative.
    ///
    /// The file says with which arguments and environment they run. That is trust in whoever writes it: most such programs can be made
    /// to run others by these.
    #[must_use]
    pub fn allow_exec(mut self, programs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.programs.extend(programs.into_iter().map(Into::into));
        self
    }

    /// Gives a variable to every program that is run, whatever the file says of it. Programs see nothing of this process's environment
    /// but `PATH`, so one that looks for its own files needs `HOME` at least:
    ///
    /// ```
    /// # use clustercache_kubeconfig::Policy;
    /// let mut policy = Policy::operator().allow_exec(["aws"]);
    /// if let Ok(home) = std::env::var("HOME") {
    ///     policy = policy.exec_env("HOME", home);
    /// }
    /// ```
    #[must_use]
    pub fn exec_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), Zeroizing::new(value.into()));
        self
    }

    /// Lets a tenant's document name these proxies, such as `http://proxy.example.com:3128`: scheme, host and port are compared. An
    /// operator's file may name any.
    ///
    /// **The proxy resolves the names of servers**, and no [`addresses`](Self::addresses) of this policy reach there: a tenant whose document
    /// names a server by a name reaches through it whatever it lets through, also what may not be dialled from here. Allow one that itself
    /// refuses what tenants must not reach: its own loopback, link-local addresses, a cloud's metadata. A server that is an address is judged
    /// here in any case.
    #[must_use]
    pub fn allow_proxy(mut self, proxies: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.proxies.extend(proxies.into_iter().map(Into::into));
        self
    }

    /// Lets an operator's file have `http` servers: whatever is sent there, credentials too, can be read and changed on the way.
    #[must_use]
    pub fn allow_http(self) -> Self {
        self.allow(OptIn::Http)
    }

    /// Lets an operator's file say `insecure-skip-tls-verify`: whoever answers at the address gets the credential.
    #[must_use]
    pub fn allow_insecure_skip_tls_verify(self) -> Self {
        self.allow(OptIn::InsecureSkipTlsVerify)
    }

    /// Lets users of an operator's file act as others (`as`, `as-uid`, `as-groups`, `as-user-extra`).
    #[must_use]
    pub fn allow_impersonation(self) -> Self {
        self.allow(OptIn::Impersonation)
    }

    /// Which addresses may be dialled for the clusters: [`AddressPolicy::tenant`] of a tenant's, [`AddressPolicy::any`] of an operator's
    /// by default. A server that is an address is judged at once, a name when it is dialled.
    #[must_use]
    pub fn addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = Some(addresses);
        self
    }

    /// What is wrong with it: what it allows without effect. A source reports them at the cache's start.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        let tenants = self.whose == Whose::Tenant;
        if tenants && !(self.allowed.is_empty() && self.programs.is_empty()) {
            mistakes.push(
                "a tenant's policy allows what a tenant's document never gets (programs, http, unverified servers, impersonation); \
                 begin with `Policy::operator()`, or leave it out"
                    .to_owned(),
            );
        }
        if self.programs.iter().any(|program| !is_c_string(program)) {
            mistakes.push("`allow_exec` names a program without a name; leave it out".to_owned());
        }
        if !self
            .env
            .iter()
            .all(|(name, value)| is_variable(name, value))
        {
            mistakes.push(
                "`exec_env` has a name that is empty or has a `=`, or a NUL; correct it".to_owned(),
            );
        }
        if self
            .proxies
            .iter()
            .any(|proxy| address::proxy(proxy).is_none())
        {
            mistakes.push(
                "`allow_proxy` has one that is no URL; give scheme, host and port, like http://proxy.example.com:3128"
                    .to_owned(),
            );
        }
        mistakes
    }

    fn allow(mut self, what: OptIn) -> Self {
        self.allowed.insert(what);
        self
    }

    pub(crate) const fn limit(&self) -> usize {
        self.max_bytes
    }

    fn which_addresses(&self) -> AddressPolicy {
        let default = || match self.whose {
            Whose::Tenant => AddressPolicy::tenant(),
            Whose::Operator => AddressPolicy::any(),
        };
        self.addresses.clone().unwrap_or_else(default)
    }

    /// Given to programs.
    pub(crate) fn env(&self) -> &BTreeMap<String, Zeroizing<String>> {
        &self.env
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::tenant()
    }
}

/// Values of the environment are secrets as like as not.
impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("whose", &self.whose)
            .field("max_bytes", &self.max_bytes)
            .field("allowed", &self.allowed)
            .field("programs", &self.programs)
            .field("env", &self.env.keys())
            .field("proxies", &self.proxies.len())
            .field("addresses", &self.which_addresses())
            .finish()
    }
}

/// A policy, and where the document stands: what it names elsewhere is named from there.
#[derive(Clone, Copy)]
pub(crate) struct Grants<'a> {
    pub(crate) policy: &'a Policy,
    /// Of a document that is no file's, nothing elsewhere is read.
    pub(crate) directory: Option<&'a Path>,
}

/// What a field needs to be granted to be read.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    File,
    Exec,
    Proxy,
    Operator,
    OptIn(OptIn),
}

impl Grants<'_> {
    /// Whether a field of this kind may be there at all; which program and which proxy is for its own judge.
    pub(crate) fn has(&self, need: Need) -> bool {
        let policy = self.policy;
        let operators = policy.whose == Whose::Operator;
        match need {
            Need::Operator => operators,
            Need::File => operators && self.directory.is_some(),
            Need::Exec => operators && self.directory.is_some() && !policy.programs.is_empty(),
            Need::Proxy => operators || !policy.proxies.is_empty(),
            Need::OptIn(what) => operators && policy.allowed.contains(&what),
        }
    }

    pub(crate) fn addresses(&self) -> AddressPolicy {
        self.policy.which_addresses()
    }

    pub(crate) fn has_program(&self, command: &str) -> bool {
        self.has(Need::Exec) && self.policy.programs.contains(command)
    }

    pub(crate) fn has_proxy(&self, url: &str) -> bool {
        let named = || {
            let origin = address::proxy(url);
            origin.is_some()
                && self
                    .policy
                    .proxies
                    .iter()
                    .any(|known| address::proxy(known) == origin)
        };
        self.has(Need::Operator) || named()
    }
}

/// Whether a text can be handed to a program at all, and says something.
pub(crate) fn is_c_string(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0')
}

pub(crate) fn is_variable(name: &str, value: &str) -> bool {
    is_c_string(name) && !name.contains('=') && !value.contains('\0')
}
