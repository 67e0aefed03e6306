//! The fake fleet, and the server that misbehaves, over real sockets, as a client sees it that knows nothing of its inside.

mod answers;
mod api;
mod auth;
mod client;
mod faults;
mod forward;
mod history;
mod hostile;
mod network;
mod process;
mod scale;
mod shared;
mod simulated;
mod watching;

/// Whether what takes minutes is wanted, too.
fn whole() -> bool {
    std::env::var("CLUSTERCACHE_FLEET").is_ok_and(|extent| extent == "whole")
}
