//! How benches measure and print. What is compared is measured in turns in the same run, so that what else the machine does falls on both sides; what
//! never waits is measured in CPU time of its thread, in which nothing else has a part.
#![allow(dead_code, unreachable_pub)] // each bench uses its part of it

use std::{fmt, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// What was measured; it is printed at the end.
#[derive(Default)]
pub struct Figures(Vec<String>);

/// The unit of a figure, with as many digits as mean something.
#[derive(Clone, Copy)]
pub enum Unit {
    Nanoseconds,
    Bytes,
    /// A number of things, named by this word.
    Of(&'static str),
}

impl Figures {
    /// A figure without a reference.
    pub fn add(&mut self, figure: &str, value: f64, unit: Unit) {
        self.0.push(format!("{figure} {}", Quantity(value, unit)));
    }

    /// A figure, and the reference that was measured in the same run.
    pub fn against(&mut self, figure: &str, value: f64, unit: Unit, reference: (&str, f64)) {
        let (name, bare) = reference;
        self.0.push(format!(
            "{figure} {} {name} {} ratio {:.2}",
            Quantity(value, unit),
            Quantity(bare, unit),
            value / bare
        ));
    }

    /// One line a figure.
    pub fn print(self) {
        for line in self.0 {
            println!("{line}");
        }
    }
}

struct Quantity(f64, Unit);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = self;
        match unit {
            Unit::Nanoseconds => write!(f, "{value:.1} ns"),
            Unit::Bytes => write!(f, "{value:.0} B"),
            Unit::Of(things) => write!(f, "{value:.3} {things}"),
        }
    }
}

/// The nanoseconds of CPU that each of `times` calls within `turn` took, for turns that never wait.
pub fn per_call(times: usize, turn: impl FnOnce()) -> f64 {
    let begun = cpu_time();
    turn();
    nanoseconds(cpu_time().saturating_sub(begun)) / count(times)
}

/// What this thread has used.
fn cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// What all threads of this process have used.
pub fn cpu_time_of_all() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).expect("it counts from zero")
}

pub fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// The value below which `percent` of them are.
pub fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}

/// The one in the middle.
pub fn median(values: &mut [f64]) -> f64 {
    percentile(values, 50)
}

/// A count as what one divides by.
pub fn count(things: usize) -> f64 {
    f64::from(u32::try_from(things).expect("no bench counts that far"))
}
