//! The API server in memory, by its HTTP: what clients that were written for more than kube-rs rely on.

mod changes;
mod faults;
mod rig;
mod versions;
