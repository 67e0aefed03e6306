//! Kubeconfigs for `clustercache`.
//!
//! A document becomes, for each of its contexts, a [`ClusterAccess`](clustercache::ClusterAccess) or a [`Refusal`] that names the
//! field and says what to do. It is judged by an allow-list on the raw document, before any loader has seen it, because what stands in
//! a Secret is another party's data: a stock client would run the programs and read the files that it names.

mod allow;
mod document;
mod entry;
mod merge;
mod policy;
mod refusal;
mod tree;

pub use document::Kubeconfig;
pub use policy::Policy;
pub use refusal::{Refusal, RefusalReason};
