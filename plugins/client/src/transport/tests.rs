//! The transport against fake API servers over real TLS, and against a raw one that says byte for byte what it is told. A test waits for
//! what the server or the transport says has happened, never for time to pass.

mod calls;
mod certificates;
mod checks;
mod close;
mod credentials;
mod dialling;
mod http1;
mod peer;
mod raw;
mod rig;
mod tls;
mod upgrade;
mod ways;
