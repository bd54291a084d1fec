//! The acknowledged versions of each document, and their comparison with the stored ones.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Result;

use crate::harness::client::Client;

const EXAMPLES_MAX: usize = 5;
const FILLER_WORDS: u64 = 60;

/// The newest acknowledged and the newest attempted version of one document. Any version between these may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Versions {
    pub(crate) acknowledged: u64,
    pub(crate) attempted: u64,
    /// Whether the writer writes it no more, because an attempt without a response may still take effect.
    pub(crate) retired: bool,
}

/// One writer's documents, by number. No other writer writes them.
#[derive(Default)]
pub(crate) struct WriterDocuments {
    pub(crate) documents: Vec<Versions>,
    pub(crate) acknowledged: u64,
    /// The acknowledgements since the last check, if they are kept.
    pub(crate) recent: Option<Vec<Acknowledgement>>,
}

/// One acknowledged write.
pub(crate) struct Acknowledgement {
    /// The document.
    pub(crate) number: usize,
    pub(crate) version: u64,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// The stored version of each document, and what is wrong with their content.
pub(crate) struct Stored {
    pub(crate) versions: HashMap<String, u64>,
    pub(crate) verdict: Verdict,
}

/// The documents of all writers.
pub(crate) struct Ledger {
    pub(crate) writers: Vec<WriterDocuments>,
}

/// The result of a check.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Acknowledged versions that are not stored.
    pub(crate) lost: u64,
    /// Stored documents with a content that no writer wrote.
    pub(crate) broken: u64,
    /// Descriptions of the first few.
    pub(crate) examples: Vec<String>,
}

impl Verdict {
    pub(crate) fn add(&mut self, other: Verdict) {
        self.lost += other.lost;
        self.broken += other.broken;
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES_MAX);
    }

    pub(crate) fn example(&mut self, text: String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text);
        }
    }
}

impl Ledger {
    pub(crate) fn new(writers: usize) -> Ledger {
        Ledger { writers: (0..writers).map(|_| WriterDocuments::default()).collect() }
    }

    /// How many writes were acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.writers.iter().map(|documents| documents.acknowledged).sum()
    }

    /// How many documents were ever attempted.
    pub(crate) fn documents(&self) -> usize {
        self.writers.iter().map(|documents| documents.documents.len()).sum()
    }

    /// Reads the whole table and compares.
    pub(crate) fn check(&self, client: &mut Client) -> Result<Verdict> {
        Ok(self.compare(read(client)?))
    }

    /// Every acknowledged version must be stored, or a later one that was attempted.
    pub(crate) fn compare(&self, stored: Stored) -> Verdict {
        let Stored { mut versions, mut verdict } = stored;
        for (writer, documents) in self.writers.iter().enumerate() {
            for (number, known) in documents.documents.iter().enumerate() {
                let key = document_key(writer, number);
                let found = versions.remove(&key).unwrap_or(0);
                if found < known.acknowledged {
                    verdict.lost += 1;
                    verdict.example(format!(
                        "{key}: version {} acknowledged, {found} found",
                        known.acknowledged
                    ));
                } else if found > known.attempted {
                    verdict.broken += 1;
                    verdict.example(format!("{key}: version {found} found, never written"));
                }
            }
        }
        verdict.broken += versions.len() as u64;
        versions.keys().take(1).for_each(|key| verdict.example(format!("{key} was never written")));
        verdict
    }

    /// Regards the stored versions as acknowledged: a version that was read may not be lost later.
    pub(crate) fn accept(&mut self, versions: &HashMap<String, u64>) {
        for (writer, documents) in self.writers.iter_mut().enumerate() {
            for (number, known) in documents.documents.iter_mut().enumerate() {
                known.acknowledged = versions.get(&document_key(writer, number)).copied().unwrap_or(0);
            }
            documents.recent.iter_mut().for_each(Vec::clear);
        }
    }
}

/// Reads the whole table. The read mode is `majority`: with `single` a leader that was stopped and continues may return
/// older rows until it learns of the new leader.
pub(crate) fn read(client: &mut Client) -> Result<Stored> {
    let mut stored = Stored { versions: HashMap::new(), verdict: Verdict::default() };
    for row in client.ask_all("[1,[15,[[14,[\"test\"]],\"crash\"],{\"read_mode\":\"majority\"}]]")? {
        let version = row["version"].as_u64().unwrap_or(0);
        let Some(key) = row["id"].as_str().map(str::to_owned) else { continue };
        if row["filler"] != filler(&key, version) {
            stored.verdict.broken += 1;
            stored.verdict.example(format!("document {key} version {version} is not whole"));
        }
        stored.versions.insert(key, version);
    }
    Ok(stored)
}

/// The primary key of a writer's document.
pub(crate) fn document_key(writer: usize, number: usize) -> String {
    format!("w{writer:03}-{number:06}")
}

/// Text that is unique to this version of this document.
pub(crate) fn filler(key: &str, version: u64) -> String {
    let mut state = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.len() as u64;
    let mut text = format!("{key}:{version}:");
    for byte in key.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    for _ in 0..FILLER_WORDS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:08x}", state >> 32));
    }
    text
}
