//! The hostile corpus: what a cluster can do to a client that speaks to it, through the public API only, with a healthy neighbour in the
//! same cache. Whatever a cluster does ends in bounded memory and in an error that says what was wrong; the neighbour stays connected;
//! nothing panics; and of the secrets in the access nothing shows anywhere, also not in the logs of any crate at TRACE (rules 7, 18, 19).

mod canaries;
mod certificates;
mod cost;
mod ears;
mod health;
mod http2;
mod refusals;
mod rig;
mod sizes;
mod stops;
mod text;

use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;
