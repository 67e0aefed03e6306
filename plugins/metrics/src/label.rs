//! Names as the values of labels. A cluster's name comes from a document that is another party's data: it is escaped, it is bounded, and two
//! clusters never come out as one, which would spoil the whole page.

use clustercache::ClusterKey;

/// What a Kubernetes name may have at most.
const LONGEST: usize = 253;

/// Namespace and name of a cluster; `None` if one of them is too long to be shown whole. What is cut could be another's.
pub(crate) fn of_cluster(key: &ClusterKey) -> Option<[String; 2]> {
    let parts = [key.namespace().unwrap_or_default(), key.name()];
    let fit = parts.iter().all(|part| part.chars().count() <= LONGEST);
    fit.then(|| parts.map(escaped))
}

/// Also backslashes are escaped, so that what comes out can be told from what had one in it.
pub(crate) fn escaped(text: &str) -> String {
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_never_make_the_same_label() {
        let names = ["a\nb", "a\\nb", "a\u{202e}b", "a\\u{202e}b", "a\"b", "a'b"];
        let labels = names.map(|name| of_cluster(&ClusterKey::named(name)).expect("short"));
        let distinct: std::collections::BTreeSet<_> = labels.iter().collect();
        assert_eq!(distinct.len(), names.len());
        for [_, name] in &labels {
            assert!(!name.contains(|letter: char| letter.is_control()), "{name}");
        }
    }

    #[test]
    fn an_ordinary_name_is_as_it_is_and_a_very_long_one_has_no_label() {
        let key = ClusterKey::new("prod", "arn:aws:eks:eu-1:1:cluster/ä");
        let whole = ["prod".into(), "arn:aws:eks:eu-1:1:cluster/ä".into()];
        assert_eq!(of_cluster(&key), Some(whole));
        assert!(of_cluster(&ClusterKey::named(&"x".repeat(253))).is_some());
        assert_eq!(of_cluster(&ClusterKey::named(&"x".repeat(254))), None);
    }
}
