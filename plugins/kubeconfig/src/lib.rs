//! Kubeconfigs for `clustercache`.
//!
//! A document becomes, for each of its contexts, a [`ClusterAccess`](clustercache::ClusterAccess) or a [`Refusal`] that names the
//! field and says what to do. It is judged by an allow-list on the raw document, before any loader has seen it, because what stands in
//! a Secret is another party's data: a stock client would run the programs and read the files that it names.
//!
//! [`KubeconfigFile`] follows files as a source of clusters.

mod allow;
mod document;
mod entry;
mod file;
mod follow;
mod merge;
mod paths;
mod policy;
mod problem;
mod read;
mod refusal;
mod state;
mod tree;
mod watch;

pub use document::Kubeconfig;
pub use file::KubeconfigFile;
pub use policy::Policy;
pub use problem::{FileProblem, FileProblemReason};
pub use refusal::{Refusal, RefusalReason};
