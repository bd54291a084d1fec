//! The fuzz targets. A target defines its inputs and the properties that must hold for any bytes.

mod codec;
mod evaluate;
mod frame;
mod json;
mod json_to_term;
mod key;
mod link;
mod log_recovery;
mod object;
mod request;
mod row;
mod stored_function;

use std::hash::{DefaultHasher, Hash, Hasher};

use io::sim::Chance;

/// Code that reads untrusted bytes.
pub trait Target: Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Initial inputs: one of each accepted kind.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Typical parts of inputs.
    fn dictionary(&self) -> &'static [&'static [u8]];

    /// Corrects lengths and checksums of a mutated input, so that the code behind their checks is reached.
    fn repair(&self, _input: &mut Vec<u8>, _chance: &mut Chance) {}

    /// Reads `input`, and panics if a property is violated. The result classifies the outcome: an input with a new one
    /// joins the corpus.
    fn check(&self, input: &[u8]) -> Outcome;
}

/// A class of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome(pub u64);

impl Outcome {
    /// Equal `parts` give equal outcomes.
    pub fn of(parts: impl Hash) -> Outcome {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Outcome(hasher.finish())
    }

    /// The outcome for a message, ignoring everything from the first name, number or value on.
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

#[must_use]
pub fn all() -> [&'static dyn Target; 11] {
    [
        &frame::Frame,
        &json_to_term::JsonToTerm,
        &json::Json,
        &key::Key,
        &row::Row,
        &log_recovery::LogRecovery,
        &link::Link,
        &codec::MessageParts,
        &request::Request,
        &evaluate::Evaluate,
        &stored_function::StoredFunction,
    ]
}

#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Target> {
    all().into_iter().find(|target| target.name() == name)
}
