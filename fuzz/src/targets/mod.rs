//! What is fuzzed. A target says what its inputs look like and what must hold for any bytes.

mod codec;
mod evaluate;
mod frame;
mod json;
mod json_to_term;
mod key;
mod link;
mod log_recovery;
mod question;
mod row;
mod stored;

use std::hash::{DefaultHasher, Hash, Hasher};

use io::sim::Chance;

/// One place where bytes from outside are read.
pub trait Target: Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Inputs to begin with: one of each kind that is taken.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// What inputs are made of.
    fn words(&self) -> &'static [&'static [u8]];

    /// Makes lengths and checksums of a changed input right again, so that what lies behind them
    /// is reached.
    fn repair(&self, _input: &mut Vec<u8>, _chance: &mut Chance) {}

    /// Reads `input` and panics when something that must hold does not. The answer tells kinds of
    /// outcome apart: an input with a new one is kept to build on.
    fn check(&self, input: &[u8]) -> Outcome;
}

/// A kind of outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome(pub u64);

impl Outcome {
    /// Outcomes of the same `parts` are the same.
    pub fn of(parts: impl Hash) -> Outcome {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Outcome(hasher.finish())
    }

    /// The outcome a message stands for: what follows the first name, number or value does not matter.
    #[must_use]
    pub fn of_message(message: &str) -> Outcome {
        Outcome::of(stem(message))
    }
}

/// A message up to the first name, number or value in it.
#[must_use]
pub fn stem(message: &str) -> &str {
    let message = message.strip_prefix("Server could not parse query: ").unwrap_or(message);
    message.split(|c: char| c.is_ascii_digit() || matches!(c, '`' | '"' | ':')).next().unwrap_or_default()
}

/// Every target.
#[must_use]
pub fn all() -> [&'static dyn Target; 10] {
    [
        &frame::Frame,
        &json_to_term::JsonToTerm,
        &json::Json,
        &key::Key,
        &row::Row,
        &log_recovery::LogRecovery,
        &link::Link,
        &codec::MessageParts,
        &question::Question,
        &evaluate::Evaluate,
    ]
}

/// The target of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Target> {
    all().into_iter().find(|target| target.name() == name)
}
