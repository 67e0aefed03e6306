//! The fake fleet over real sockets, as a client sees it that knows nothing of its inside.

mod answers;
mod api;
mod auth;
mod client;
mod network;
mod process;
mod watching;
