//! A writer: changes its own documents in all ways, alone and several at once, and also sends writes that must be refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::check::{Fault, FaultKind, REFUSED_MARK};
use super::model::{Document, as_term, fields, row};
use super::shared::{Shared, table};
use crate::harness::client::Client;

/// Documents that a writer uses at the same time.
const LIVE: usize = 250;
const BATCH_MAX: usize = 30;
/// Without a response for this long, a write has an unknown result.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Parts of the errors of writes that were refused, and so never take effect.
const REFUSALS: [&str; 3] = ["Duplicate primary key", "it must be refused", "cannot be changed"];

/// Writes all documents with its number.
pub(super) struct Writer<'a> {
    shared: &'a Shared,
    writer: u32,
    random: StdRng,
    live: Vec<Document>,
    next_number: u32,
}

/// The result of a write.
enum Outcome {
    /// As it should be.
    Expected,
    /// It may take effect or not, even later.
    Unknown,
}

impl<'a> Writer<'a> {
    pub(super) fn new(shared: &'a Shared, writer: u32, random: StdRng) -> Writer<'a> {
        Writer { shared, writer, random, live: Vec::new(), next_number: 0 }
    }

    /// Writes until the run is over.
    pub(super) fn run(mut self) {
        while !self.shared.over.load(Ordering::Acquire) {
            let node = self.shared.nodes.any(&mut self.random);
            let Ok(mut client) = Client::connect_for(node.driver, RESPONSE_TIMEOUT) else {
                std::thread::yield_now();
                continue;
            };
            let mut goes_on = true;
            while goes_on && !self.shared.over.load(Ordering::Acquire) {
                let shared = self.shared;
                let _writing = shared.writes.gate.read();
                goes_on = self.write(&mut client).is_ok();
            }
        }
    }

    /// Makes one write. Fails if the connection is lost.
    fn write(&mut self, client: &mut Client) -> Result<()> {
        while self.live.len() < LIVE {
            self.live.push(Document { writer: self.writer, number: self.next_number });
            self.next_number += 1;
        }
        match self.random.random_range(0..10) {
            0 => self.refused_write(client),
            1..5 => self.batch(client),
            _ => self.single(client),
        }
    }

    fn next_version(&self, document: Document) -> u32 {
        self.shared.writes.acknowledged(document) + 1
    }

    fn is_present(&self, document: Document) -> bool {
        let version = self.shared.writes.acknowledged(document);
        self.shared.writes.model.state(document, version).is_some()
    }

    fn any(&mut self) -> Document {
        let first = Document { writer: self.writer, number: 0 };
        self.live.choose(&mut self.random).copied().unwrap_or(first)
    }

    /// Makes the next write of one document.
    fn single(&mut self, client: &mut Client) -> Result<()> {
        let document = self.any();
        let (key, version) = (document.key(), self.next_version(document));
        let target = json!([16, [table(), key]]);
        let is_present = self.is_present(document);
        let (write, expected) = match self.shared.writes.model.state(document, version) {
            None => (json!([54, [target]]), "deleted"),
            Some(content) if !is_present => {
                let conflict = ["error", "replace", "update"][self.random.random_range(0..3)];
                (
                    json!([56, [table(), as_term(row(document, &content))], { "conflict": conflict }]),
                    "inserted",
                )
            }
            Some(content) => match self.random.random_range(0..3) {
                0 => (json!([53, [target, as_term(fields(&content))]]), "replaced"),
                1 => (json!([55, [target, as_term(row(document, &content))]]), "replaced"),
                _ => (
                    json!([56, [table(), as_term(row(document, &content))], { "conflict": "replace" }]),
                    "replaced",
                ),
            },
        };
        self.send(client, &write, &[document], |result| result[expected] == 1)
    }

    /// Makes the next write of several documents: deletions, or inserts that may replace.
    fn batch(&mut self, client: &mut Client) -> Result<()> {
        let count = self.random.random_range(2..=BATCH_MAX);
        let mut documents: Vec<Document> = (0..count).map(|_| self.any()).collect();
        documents.sort_unstable();
        documents.dedup();
        let model = self.shared.writes.model;
        let next = |document: Document| model.state(document, self.next_version(document));
        let (kept, deleted): (Vec<Document>, Vec<Document>) =
            documents.into_iter().partition(|document| next(*document).is_some());
        if !deleted.is_empty() {
            let keys = deleted.iter().map(|document| document.key().into());
            let target: Vec<Value> = std::iter::once(table()).chain(keys).collect();
            let all = deleted.len();
            self.send(client, &json!([54, [[78, target]]]), &deleted, |result| result["deleted"] == all)?;
        }
        if kept.is_empty() {
            return Ok(());
        }
        let next = |document: Document| model.state(document, self.next_version(document));
        let rows: Vec<Value> =
            kept.iter().filter_map(|document| Some(as_term(row(*document, &next(*document)?)))).collect();
        let all = rows.len() as u64;
        let insert = json!([56, [table(), [2, rows]], { "conflict": "replace" }]);
        let count = |result: &Value, field: &str| result[field].as_u64().unwrap_or(0);
        self.send(client, &insert, &kept, |result| {
            count(result, "inserted") + count(result, "replaced") == all
        })
    }

    /// Sends a write of one row that must not take effect.
    fn refused_write(&mut self, client: &mut Client) -> Result<()> {
        let document = self.any();
        let marked = json!({ "id": document.key(), REFUSED_MARK: true });
        let target = json!([16, [table(), document.key()]]);
        let fails = json!({ REFUSED_MARK: true, "more": [12, ["it must be refused"]] });
        let write = match (self.is_present(document), self.random.random_range(0..3)) {
            (true, 0) => json!([56, [table(), marked]]),
            (true, 1) => json!([53, [target, fails]]),
            (false, 0) => json!([53, [target, { REFUSED_MARK: true }]]),
            _ => json!([55, [target, { "id": "other", REFUSED_MARK: true }]]),
        };
        let is_refused = |result: &Value| {
            let why = result["first_error"].as_str().unwrap_or_default();
            result["skipped"] == 1 || REFUSALS.iter().any(|text| why.contains(text))
        };
        match self.ask(client, &write, is_refused) {
            Ok(Outcome::Expected) => {
                self.shared.tally.count(|tally| &tally.refused_writes);
                Ok(())
            }
            Ok(Outcome::Unknown) => {
                self.retire(&[document]);
                Ok(())
            }
            // It could take effect later, when it is no longer refused.
            Err(error) => {
                self.retire(&[document]);
                Err(error)
            }
        }
    }

    /// Sends the next write of these documents.
    fn send(
        &mut self,
        client: &mut Client,
        write: &Value,
        documents: &[Document],
        is_expected: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let writes = &self.shared.writes;
        let versions: Vec<u32> = documents.iter().map(|document| self.next_version(*document)).collect();
        let each = || documents.iter().copied().zip(versions.iter().copied());
        each().for_each(|(document, version)| writes.begin(document, version));
        match self.ask(client, write, is_expected) {
            Ok(Outcome::Expected) => {
                each().for_each(|(document, version)| writes.acknowledge(document, version));
                Ok(())
            }
            Ok(Outcome::Unknown) => {
                self.retire(documents);
                Ok(())
            }
            Err(error) => {
                self.retire(documents);
                Err(error)
            }
        }
    }

    fn ask(
        &self,
        client: &mut Client,
        write: &Value,
        is_expected: impl Fn(&Value) -> bool,
    ) -> Result<Outcome> {
        let answer = client.ask(&json!([1, write]).to_string())?;
        let result = &answer["r"][0];
        match answer["t"] == 1 {
            true if is_expected(result) => Ok(Outcome::Expected),
            // Some rows, or an error at a shard without a leader.
            true if result["errors"].as_u64().unwrap_or(0) > 0 => Ok(Outcome::Unknown),
            true => {
                let what = format!("{write} was answered with {result}");
                self.shared.tally.fault(Fault::new(FaultKind::Wrong, what), "a write");
                Ok(Outcome::Unknown)
            }
            false => Ok(Outcome::Unknown),
        }
    }

    /// Writes these documents no more: the last write may still take effect, even after later ones.
    fn retire(&mut self, documents: &[Document]) {
        self.live.retain(|document| !documents.contains(document));
        self.shared.tally.unknown_writes.fetch_add(documents.len() as u64, Ordering::Relaxed);
    }
}
