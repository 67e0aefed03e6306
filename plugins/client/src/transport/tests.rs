//! The transport against fake API servers over real TLS, and against raw ones that say byte for byte what they are told. A test waits for
//! what the server or the transport says has happened, never for time to pass.

mod about;
mod calls;
mod certificates;
mod checks;
mod close;
mod credentials;
mod dialling;
mod floods;
mod frames;
mod goaway;
mod http1;
mod kinds;
mod limits;
mod peer;
mod pings;
mod rates;
mod raw;
mod retries;
mod rig;
mod room;
mod streams;
mod tls;
mod upgrade;
mod ways;
