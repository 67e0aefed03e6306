//! Skipping a test loudly, where there are no binaries to run it with.

use std::io::Write as _;
use std::{env, io, thread};

use super::RealError;

/// How the line begins by which a skipped test is counted; `cargo xtask test` repeats such lines at its end.
pub const SKIPPED: &str = "SKIPPED:";

/// Set to `required` where the binaries are known to be there, so that a skip is a failure.
const REAL_VARIABLE: &str = "CLUSTERCACHE_REAL";

/// Starts that many real API servers, or skips the test, loudly. What follows the number is what the test then returns.
#[macro_export]
macro_rules! real_or_skip {
    ($servers:expr) => {
        $crate::real_or_skip!($servers, ())
    };
    ($servers:expr, $skipped:expr) => {
        match $crate::real::or_skip($crate::real::RealApiServers::start($servers).await) {
            Some(servers) => servers,
            None => return $skipped,
        }
    };
}

/// What was started, or nothing after a line that says what is skipped and why.
///
/// The line goes to the standard error itself, past the test harness, which would hide it.
///
/// # Panics
/// Where anything else than the want of binaries stood in the way; or that too, with `CLUSTERCACHE_REAL=required`.
#[track_caller]
pub fn or_skip<T>(started: Result<T, RealError>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(error) if error.is_unavailable() && !required() => {
            let current = thread::current();
            let test = current.name().unwrap_or("a test");
            // A line that cannot be written must not fail a test that is skipped.
            let _ = writeln!(io::stderr(), "{SKIPPED} {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn required() -> bool {
    env::var_os(REAL_VARIABLE).is_some_and(|value| value == "required")
}
