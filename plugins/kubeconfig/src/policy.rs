//! Whose document it is, and so what it may ask for.

/// What a document may ask for.
///
/// Both policies accept the same fields, all of them inline: nothing makes this crate open a file, run a program or read the
/// environment for what stands in a document. They differ in how much they read. What an operator may be allowed beyond that (paths,
/// a proxy, programs by name) belongs here too, and is refused until it is asked for.
///
/// ```
/// use clustercache_kubeconfig::Policy;
///
/// assert_eq!(Policy::default(), Policy::tenant());
/// let small = Policy::tenant().max_bytes(16 * 1024);
/// # let _ = small;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    max_bytes: usize,
}

impl Policy {
    /// For what another party wrote, such as what comes out of a Secret: at most 64 KiB.
    pub const fn tenant() -> Self {
        Self {
            max_bytes: 64 * 1024,
        }
    }

    /// For a file that the operator named: at most 16 MiB, which is 3,000 contexts with a client certificate each.
    pub const fn operator() -> Self {
        Self {
            max_bytes: 16 * 1024 * 1024,
        }
    }

    /// The largest document that is read, in bytes.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    pub(crate) const fn limit(&self) -> usize {
        self.max_bytes
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::tenant()
    }
}
