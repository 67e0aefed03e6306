//! Pure: a cluster's state, an input and the time make the next state and the actions. No I/O, no clock, no task.

pub(crate) mod backoff;
pub(crate) mod brake;
pub(crate) mod claims;
pub(crate) mod cluster;
pub(crate) mod detector;
pub(crate) mod resources;
#[cfg(test)]
mod shell;
