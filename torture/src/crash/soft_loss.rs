//! Soft writes after a power cut: only the newest may be lost, and none of those before one that survived.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::workload::ledger::{Ledger, Stored, Verdict, document_key};

/// A soft write is synced within a tenth of a second; the rest is for a machine that is busy.
const AGE_MAX: Duration = Duration::from_millis(1100);

/// Compares the stored versions with the acknowledgements since the last check. `killed` is when the node ended.
pub(super) fn compare(ledger: &Ledger, stored: Stored, killed: Instant) -> Verdict {
    let Stored { versions, mut verdict } = stored;
    let found = |key: &str| versions.get(key).copied().unwrap_or(0);
    let recent = || {
        let writers = ledger.writers.iter().enumerate();
        writers.flat_map(|(writer, documents)| {
            let recent = documents.recent.iter().flatten();
            recent.map(move |write| (document_key(writer, write.number), write))
        })
    };
    let survived = recent().filter(|(key, write)| found(key) >= write.version);
    let newest_survivor = survived.map(|(_, write)| write.sent).max();
    for (key, write) in recent().filter(|(key, write)| found(key) < write.version) {
        let age = killed.saturating_duration_since(write.received);
        if age > AGE_MAX {
            verdict.lost += 1;
            verdict
                .example(format!("{key}: version {} lost {age:?} after its acknowledgement", write.version));
        } else if newest_survivor.is_some_and(|sent| write.received < sent) {
            verdict.lost += 1;
            verdict.example(format!("{key}: version {} lost, and a later write is there", write.version));
        }
    }
    older(ledger, &found, &mut verdict);
    verdict
}

/// Versions that were there at the last check, and versions that no writer wrote.
fn older(ledger: &Ledger, found: &dyn Fn(&str) -> u64, verdict: &mut Verdict) {
    for (writer, documents) in ledger.writers.iter().enumerate() {
        let rewritten: HashSet<usize> = documents.recent.iter().flatten().map(|write| write.number).collect();
        for (number, known) in documents.documents.iter().enumerate() {
            let key = document_key(writer, number);
            let found = found(&key);
            if found < known.acknowledged && !rewritten.contains(&number) {
                verdict.lost += 1;
                verdict.example(format!(
                    "{key}: version {} was there before, {found} found",
                    known.acknowledged
                ));
            }
            if found > known.attempted {
                verdict.broken += 1;
                verdict.example(format!("{key}: version {found} found, never written"));
            }
        }
    }
}
