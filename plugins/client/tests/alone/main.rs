//! What is counted of the whole process: its heap, and its descriptors. So one test runs at a time here.

use std::sync::{Mutex, PoisonError};

mod descriptors;
mod large_answers;

/// Runs a test while no other does, on a runtime that is gone when the next begins.
fn alone(test: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}
