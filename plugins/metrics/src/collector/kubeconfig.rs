//! What is wrong with the files of kubeconfig sources, by source and reason: every reason of each from the beginning.

use std::collections::BTreeMap;

use clustercache::ClusterSource;
use clustercache_kubeconfig::{FileProblemReason, KubeconfigFile};

use crate::page;

/// Sources of one name are one.
pub(super) fn problems(
    sources: &[KubeconfigFile],
) -> impl Iterator<Item = ([String; 2], f64)> + use<> {
    let mut counts = BTreeMap::<[String; 2], u64>::new();
    for source in sources {
        let labels = |reason: &str| [source.name().to_owned(), reason.to_owned()];
        for reason in FileProblemReason::labels() {
            counts.entry(labels(reason)).or_default();
        }
        for problem in source.problems() {
            *counts.entry(labels(problem.reason().label())).or_default() += 1;
        }
    }
    counts
        .into_iter()
        .map(|(labels, count)| (labels, page::count(count)))
}
