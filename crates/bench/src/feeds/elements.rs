//! Parses batches of a feed.

use client::answer::{self, PARTIAL, SEQUENCE};
use serde::Deserialize;

use super::model::{Change, Version};

/// An event that arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Number of the feed.
    pub feed: u32,
    pub change: Change,
    /// Since the start of the measurement.
    pub at_ns: i64,
}

/// An element of a feed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element {
    Change(Change),
    /// The server dropped this many changes, because the client was too slow.
    Skipped(u64),
}

/// A response to `changes` or CONTINUE.
#[derive(Debug, PartialEq)]
pub enum Batch {
    /// The feed goes on.
    Elements(Vec<Element>),
    /// The feed ended, with the reason.
    Ended(String),
}

/// The text of the element that tells how many changes were dropped, around the number.
const SKIPPED: (&str, &str) = ("Changefeed cache over array size limit, skipped ", " elements.");

#[derive(Deserialize)]
struct RawBatch {
    r: Vec<RawElement>,
}

#[derive(Deserialize)]
struct RawElement {
    #[serde(default)]
    old_val: Option<RawRow>,
    #[serde(default)]
    new_val: Option<RawRow>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct RawRow {
    id: u64,
    seq: u64,
}

/// Parses a response. One that is neither an error nor a batch of changes of the measured table ends the feed.
pub fn parse(body: &[u8]) -> Batch {
    match answer::type_at_head(body) {
        Some(PARTIAL) => match elements(body) {
            Ok(elements) => Batch::Elements(elements),
            Err(why) => Batch::Ended(why),
        },
        Some(SEQUENCE) => Batch::Ended("the server ended the stream".to_owned()),
        _ => match answer::parse(body) {
            Ok(other) => Batch::Ended(format!("a response of type {} is no batch of a feed", other.t)),
            Err(failure) => Batch::Ended(failure.to_string()),
        },
    }
}

fn elements(body: &[u8]) -> Result<Vec<Element>, String> {
    let wrong = |cause| format!("an element is no change of the table: {cause}");
    let batch: RawBatch = serde_json::from_slice(body).map_err(wrong)?;
    let version = |row: Option<RawRow>| row.map(|row| Version { id: row.id, seq: row.seq });
    let element = |raw: RawElement| match raw.error {
        Some(text) => {
            skipped(&text).map(Element::Skipped).ok_or_else(|| format!("an element has the error: {text}"))
        }
        None => Ok(Element::Change(Change { old: version(raw.old_val), new: version(raw.new_val) })),
    };
    batch.r.into_iter().map(element).collect()
}

fn skipped(text: &str) -> Option<u64> {
    text.strip_prefix(SKIPPED.0)?.strip_suffix(SKIPPED.1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_skipped_ones_are_told_apart() {
        let body = br#"{"t":3,"r":[{"new_val":{"id":1,"seq":2,"text":"x"},"old_val":null},
            {"error":"Changefeed cache over array size limit, skipped 17 elements."}],"n":[1]}"#;
        let change = Change { old: None, new: Some(Version { id: 1, seq: 2 }) };
        assert_eq!(parse(body), Batch::Elements(vec![Element::Change(change), Element::Skipped(17)]));
        assert_eq!(parse(br#"{"t":3,"r":[],"n":[1]}"#), Batch::Elements(Vec::new()));
    }

    #[test]
    fn anything_else_ends_the_feed_with_its_reason() {
        let ended = |body: &[u8]| match parse(body) {
            Batch::Ended(why) => why,
            Batch::Elements(elements) => format!("{elements:?}"),
        };
        let error = br#"{"t":18,"e":4100000,"r":["Table `a.b` does not exist."],"b":[]}"#;
        assert_eq!(ended(error), "OP_FAILED: Table `a.b` does not exist.");
        assert!(ended(br#"{"t":2,"r":[]}"#).contains("ended"));
        assert!(ended(br#"{"t":1,"r":[5]}"#).contains("type 1"));
        assert!(ended(br#"{"t":3,"r":[{"error":"no"}]}"#).contains("no"));
        assert!(ended(br#"{"t":3,"r":[{"new_val":{"id":"text"}}]}"#).contains("no change of the table"));
    }
}
