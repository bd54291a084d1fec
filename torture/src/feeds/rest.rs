//! Quiescent points: writers wait, the table is read, and all feeds must have led to its rows.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::check::{Fault, FaultKind, Rest};
use super::model::{Document, row};
use super::shared::{Shared, table};
use crate::harness::client::Client;

/// How long feeds may take to deliver the last changes. Feeds that are being opened wait for leaders.
const REST_TIMEOUT: Duration = Duration::from_secs(60);
/// After this long the table is read once more: writes of unknown result may have taken effect since.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// Compares all feeds of `sessions` sessions with the table. Fails if the table cannot be read, lacks an acknowledged write, or a
/// feed never leads to its rows.
pub(super) fn rest(shared: &Shared, client: &mut Client, sessions: usize) -> Result<()> {
    let writing = shared.writes.gate.write();
    let deadline = Instant::now() + REST_TIMEOUT;
    let compared = loop {
        shared.resting.begin(read(shared, client)?);
        match shared.resting.wait(sessions, Instant::now() + READ_INTERVAL) {
            // A mutant's fault does not pass.
            Err(_) if Instant::now() < deadline && shared.mutant.is_none() => {}
            compared => break compared,
        }
    };
    shared.resting.end();
    drop(writing);
    match compared {
        Ok(comparisons) => {
            shared.tally.count(|tally| &tally.rests);
            shared.tally.comparisons.fetch_add(comparisons, Ordering::Relaxed);
            Ok(())
        }
        Err(reasons) => {
            for reason in &reasons {
                shared.tally.fault(Fault::new(FaultKind::Fold, reason.clone()), "at a quiescent point");
            }
            bail!("{} sessions have feeds that do not lead to the rows of the table", reasons.len())
        }
    }
}

/// Reads the table, and finds out which write of each document was the last to take effect.
fn read(shared: &Shared, client: &mut Client) -> Result<Rest> {
    let writes = &shared.writes;
    let query = json!([1, [15, table()[1], { "read_mode": "majority" }]]).to_string();
    let rows = client.ask_all(&query).context("reading the table")?;
    let (acknowledged, newest) = (writes.all_acknowledged(), writes.all_newest());
    let mut found = vec![None; newest.len()];
    let mut ordered = Vec::with_capacity(rows.len());
    for stored in rows {
        let version = stored["version"].as_u64().unwrap_or(0) as u32;
        let document = Document::of_row(&stored);
        let content = document.and_then(|document| Some((document, writes.model.state(document, version)?)));
        match content {
            Some((document, content)) if row(document, &content) == stored => {
                found[document.place(writes.writers)] = Some(version);
                ordered.push((document, content));
            }
            _ => bail!("the table has a row that was never written: {stored}"),
        }
    }
    let version_of = |place: usize| {
        let document = Document::at(place, writes.writers);
        let mut possible = acknowledged[place]..=newest[place];
        let version = match found[place] {
            Some(version) => Some(version).filter(|version| possible.contains(version)),
            None => possible.find(|version| writes.model.state(document, *version).is_none()),
        };
        version.with_context(|| {
            let (key, found, acknowledged) = (document.key(), found[place], acknowledged[place]);
            format!("{key}: version {acknowledged} was acknowledged, {found:?} is stored")
        })
    };
    let versions = (0..newest.len()).map(version_of).collect::<Result<_>>()?;
    ordered.sort_by_key(|(document, content)| (content.score, *document));
    Ok(Rest { versions, ordered })
}
