//! The writers: each inserts and updates its documents until its connection breaks.

use std::thread;
use std::time::Instant;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::ledger::{Acknowledgement, Ledger, Versions, WriterDocuments, document_key, filler};
use crate::harness::client::Client;

const DOCUMENTS_PER_WRITER_MAX: usize = 400;

/// Runs all writers while `until` runs, which ends by killing the node and so ends the writers. The ledger then has
/// the acknowledged versions.
pub(crate) fn run(
    port: u16,
    ledger: &mut Ledger,
    seed: u64,
    until: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..ledger.writers.len() {
        clients.push(Client::connect(port)?);
    }
    thread::scope(|scope| {
        for (writer, (documents, client)) in ledger.writers.iter_mut().zip(clients).enumerate() {
            scope
                .spawn(move || write(writer, documents, client, StdRng::seed_from_u64(seed ^ writer as u64)));
        }
        until()
    })
}

fn write(writer: usize, documents: &mut WriterDocuments, mut client: Client, mut random: StdRng) {
    while write_one(writer, documents, &mut client, &mut random).1.is_ok() {}
}

pub(crate) enum WriteResponse {
    Acknowledged,
    /// An error, or a row that was not written.
    Otherwise(Value),
}

/// Writes one document of this writer; returns its number and the response, or the error of the connection.
pub(crate) fn write_one(
    writer: usize,
    documents: &mut WriterDocuments,
    client: &mut Client,
    random: &mut StdRng,
) -> (usize, Result<WriteResponse>) {
    let fresh = documents.documents.len() < DOCUMENTS_PER_WRITER_MAX && random.random_ratio(1, 3);
    let older = (!fresh && !documents.documents.is_empty())
        .then(|| random.random_range(0..documents.documents.len()));
    let number = older.filter(|number| !documents.documents[*number].retired).unwrap_or_else(|| {
        documents.documents.push(Versions::default());
        documents.documents.len() - 1
    });
    let known = &mut documents.documents[number];
    let before = known.attempted;
    let key = document_key(writer, number);
    known.attempted += 1;
    let query = write_query(&key, known.attempted, before == 0);
    let sent = Instant::now();
    // Any other response is no acknowledgement: the version may or may not be stored.
    let response = client.ask(&query).map(|answer| {
        let done = &answer["r"][0];
        match done["inserted"] == 1 || done["replaced"] == 1 {
            true => WriteResponse::Acknowledged,
            false => WriteResponse::Otherwise(answer),
        }
    });
    if matches!(response, Ok(WriteResponse::Acknowledged)) {
        known.acknowledged = known.attempted;
        documents.acknowledged += 1;
        let (version, received) = (known.acknowledged, Instant::now());
        documents.recent.iter_mut().for_each(|recent| {
            recent.push(Acknowledgement { number, version, sent, received });
        });
    }
    (number, response)
}

/// The query for a version: an insert of a new document; otherwise an update by key for even versions and a replacing
/// insert for odd ones.
fn write_query(key: &str, version: u64, new: bool) -> String {
    let table = "[15,[[14,[\"test\"]],\"crash\"]]";
    let fields = format!("\"version\":{version},\"filler\":\"{}\"", filler(key, version));
    if !new && version.is_multiple_of(2) {
        return format!("[1,[53,[[16,[{table},\"{key}\"]],{{{fields}}}]]]");
    }
    format!("[1,[56,[{table},{{\"id\":\"{key}\",{fields}}}],{{\"conflict\":\"replace\"}}]]")
}
