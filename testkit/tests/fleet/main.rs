//! The fake fleet, and the server that misbehaves, over real sockets, as a client sees it that knows nothing of its inside.

mod answers;
mod api;
mod auth;
mod client;
mod forward;
mod hostile;
mod network;
mod process;
mod watching;
