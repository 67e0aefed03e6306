//! What tests, examples and benches of `clustercache`, and of controllers that use it, are made of.

pub mod pki;
