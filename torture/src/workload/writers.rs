//! The writers: each inserts and updates documents of its own until its connection breaks.

use std::thread;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::ledger::{Known, Ledger, Page, document_key, filler};
use crate::harness::client::Client;

const DOCUMENTS_PER_WRITER_MAX: usize = 400;

/// Lets all writers run while `until` runs; that one ends by killing the node, which ends
/// the writers. What each saw acknowledged is in the ledger afterwards.
pub(crate) fn run(
    port: u16,
    ledger: &mut Ledger,
    seed: u64,
    until: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..ledger.pages.len() {
        clients.push(Client::connect(port)?);
    }
    thread::scope(|scope| {
        for (writer, (page, client)) in ledger.pages.iter_mut().zip(clients).enumerate() {
            scope.spawn(move || write(writer, page, client, StdRng::seed_from_u64(seed ^ writer as u64)));
        }
        until()
    })
}

fn write(writer: usize, page: &mut Page, mut client: Client, mut random: StdRng) {
    while write_one(writer, page, &mut client, &mut random).1.is_ok() {}
}

/// What a write was answered with.
pub(crate) enum Answered {
    Acknowledged,
    /// An error, or a row that was not written.
    Otherwise(Value),
}

/// One write of one document of this writer: its number, and what was answered. Fails with the
/// connection.
pub(crate) fn write_one(
    writer: usize,
    page: &mut Page,
    client: &mut Client,
    random: &mut StdRng,
) -> (usize, Result<Answered>) {
    let fresh = page.documents.len() < DOCUMENTS_PER_WRITER_MAX && random.random_ratio(1, 3);
    let older = (!fresh && !page.documents.is_empty()).then(|| random.random_range(0..page.documents.len()));
    let number = older.filter(|number| !page.documents[*number].retired).unwrap_or_else(|| {
        page.documents.push(Known::default());
        page.documents.len() - 1
    });
    let known = &mut page.documents[number];
    let before = known.attempted;
    let key = document_key(writer, number);
    known.attempted += 1;
    let query = write_query(&key, known.attempted, before == 0);
    // An answer that is no success is not an acknowledgement; the version stays open.
    let answered = client.ask(&query).map(|answer| {
        let done = &answer["r"][0];
        match done["inserted"] == 1 || done["replaced"] == 1 {
            true => Answered::Acknowledged,
            false => Answered::Otherwise(answer),
        }
    });
    if matches!(answered, Ok(Answered::Acknowledged)) {
        known.acknowledged = known.attempted;
        page.acknowledged += 1;
    }
    (number, answered)
}

/// An insert of a new document; otherwise half of the work is a replacing insert, and an
/// update by key every second version.
fn write_query(key: &str, version: u64, new: bool) -> String {
    let table = "[15,[[14,[\"test\"]],\"crash\"]]";
    let fields = format!("\"version\":{version},\"filler\":\"{}\"", filler(key, version));
    if !new && version.is_multiple_of(2) {
        return format!("[1,[53,[[16,[{table},\"{key}\"]],{{{fields}}}]]]");
    }
    format!("[1,[56,[{table},{{\"id\":\"{key}\",{fields}}}],{{\"conflict\":\"replace\"}}]]")
}
