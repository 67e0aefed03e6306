//! Informers in a whole cache, over fake API servers with real TLS, and over a real one. Only what is public is used.

mod faults;
mod fleet;
mod life;
mod reading;
mod real;
mod rig;
mod truth;
