//! The events of a seed, as one digest and as printed lines.

use std::cell::{Cell, RefCell};
use std::fmt;

use io::sim::process;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
    static IS_ENABLED: Cell<bool> = const { Cell::new(false) };
    static NAMES: RefCell<Vec<(u64, usize)>> = const { RefCell::new(Vec::new()) };
}

/// A digest of all events in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace(pub u64);

impl Trace {
    /// Adds an event.
    pub fn note(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }
}

/// Forgets the machines of an earlier seed.
pub(crate) fn clear() {
    NAMES.with_borrow_mut(Vec::clear);
}

/// Sets the simulated time of the following lines.
pub(crate) fn set_now(ns: u64) {
    NOW_NS.set(ns);
}

pub(crate) fn set_machine(process: u64, machine: usize) {
    NAMES.with_borrow_mut(|names| names.push((process, machine)));
}

/// Prints events as lines from now on.
pub fn enable() {
    IS_ENABLED.set(true);
}

/// Whether events are printed.
pub(crate) fn is_enabled() -> bool {
    IS_ENABLED.get()
}

/// Prints a line about the simulation itself.
macro_rules! trace_line {
    ($($words:tt)*) => {
        if $crate::trace::is_enabled() {
            eprintln!("{} {}", $crate::trace::stamp(), format_args!($($words)*));
        }
    };
}
pub(crate) use trace_line;

/// The time and the machine.
pub(crate) fn stamp() -> String {
    let ns = NOW_NS.get();
    let machine = process().map(|process| {
        NAMES.with_borrow(|names| names.iter().rev().find(|(known, _)| *known == process.0).map(|(_, n)| *n))
    });
    let name = match machine.flatten() {
        Some(number) => format!("node {number}"),
        None => "world ".to_owned(),
    };
    format!("{:9.4} {name}", ns as f64 / 1e9)
}

/// Simulated time and machine before each line of the log.
#[derive(Clone, Copy, Debug)]
pub struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", stamp())
    }
}
