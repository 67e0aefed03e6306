//! How much an answer may be: what a cluster sends is another party's data, and nothing of it is held without a limit.

/// The limits of a client on answers, in bytes. One that is larger fails with [`TransportError::TooLarge`](crate::TransportError::TooLarge):
/// at its head where that says how large it is, else at the byte that is too much.
///
/// Heads have a limit too, of 32 KiB and 100 headers (1,024 over HTTP/2), which is no option: a larger one is
/// [`Protocol`](crate::TransportError::Protocol). Nothing is inflated: an answer that is encoded though its
/// request did not ask for that is an error.
///
/// ```
/// use clustercache_client::{KubeClient, Limits};
///
/// let mut limits = Limits::default();
/// limits.list = 1 << 30;
/// let provider = KubeClient::new().limits(limits);
/// # let _ = provider;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// What is read of an answer to a question of the health check; what is beyond is not asked for, and no error. Default 64 KiB.
    pub probe: u64,
    /// An answer to a read or write of one object, discovery, a log that is not followed; and whatever a request is refused with.
    /// Default 32 MiB: etcd takes objects of 1.5 MiB, `OpenAPI` documents have ten times as much.
    pub call: u64,
    /// A list of a collection, or the answer to the deletion of one. Default 256 MiB; who lists in pages has one a page.
    pub list: u64,
    /// One line of a watch, which is one event, or of a log that is followed; all lines together have no limit. Default 16 MiB.
    pub line: u64,
}

impl Limits {
    /// Every mistake, as text that says which limit, what was wrong and what to give instead.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let Self {
            probe,
            call,
            list,
            line,
        } = *self;
        let all = [
            ("probe", probe),
            ("call", call),
            ("list", list),
            ("line", line),
        ];
        let mistake = |(name, limit)| {
            (limit == 0).then(|| format!("limits.{name} is zero; give at least one byte"))
        };
        all.into_iter().filter_map(mistake).collect()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            probe: 64 << 10,
            call: 32 << 20,
            list: 256 << 20,
            line: 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_that_are_documented() {
        let Limits {
            probe,
            call,
            list,
            line,
        } = Limits::default();
        assert_eq!(
            [probe, call, list, line],
            [65_536, 33_554_432, 268_435_456, 16_777_216]
        );
    }
}
