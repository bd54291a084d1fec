//! The records of histories, which changefeeds read.

use engine::Space;
use shard::HistoryEntry;
use storage::history_record;

use super::{CheckError, OpenEngine, report_range};
use crate::progress::Progress;
use crate::report::{DamageKind, Report};
use crate::walk::{Found, walk};

pub(super) fn check(
    open: &OpenEngine,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), CheckError> {
    progress.begin("Checking histories");
    walk(&open.engine, Space::History, (&[], None), &mut |found| {
        let Found::Pair { key, value } = found else {
            return report_range(found, Space::History, &|_| None, report);
        };
        progress.step();
        report.history_records += 1;
        let Some((group, record)) = history_record(key, value) else {
            report.add(DamageKind::History, None, format!("a record has the key {key:02x?}"));
            return;
        };
        if let Err(cause) = HistoryEntry::decode(record) {
            report.add(DamageKind::History, None, format!("group {group}: {cause}"));
        }
    })?;
    Ok(())
}
