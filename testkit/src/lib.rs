//! To be written.
pub mod real;
