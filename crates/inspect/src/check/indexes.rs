//! All index entries, against the rows and the other way round.
//!
//! [`super::rows`] has summed up the expected entries. This module sums up the stored ones. If the sums of an index differ, its
//! entries and rows are looked up one by one.

use bytes::Bytes;
use datum::PrimaryKey;
use engine::{Engine, Space};
use storage::{IndexHit, IndexId, TableId, index_hit, row_place};

use super::row_check::read_row;
use super::table_check::{TableCheck, TableChecks};
use super::{CheckError, OpenEngine, report_range};
use crate::progress::Progress;
use crate::report::{DamageKind, Report};
use crate::walk::{Found, Range, walk};

pub(super) fn check(
    open: &OpenEngine,
    checks: &mut TableChecks,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), CheckError> {
    walk(&open.engine, Space::Index, (&[], None), &mut |found| match found {
        Found::Pair { key, value } => {
            progress.step();
            pair(checks, report, key, value);
        }
        // Entries have no checksums of their own.
        Found::Doubtful { .. } => {}
        Found::Damage { .. } | Found::Lost { .. } => {
            report_range(found, Space::Index, &|range| table_in(checks, range), report);
        }
    })?;
    for (id, check) in &checks.tables {
        for (index, sums) in &check.indexes {
            if sums.expected != sums.found {
                let place = Place { open, check, table: *id, index: *index };
                place.check_rows(report)?;
                place.check_entries(report)?;
            }
        }
    }
    Ok(())
}

fn pair(checks: &mut TableChecks, report: &mut Report, key: &[u8], value: &[u8]) {
    let Some((table, index, IndexHit { key: entry_key, primary, entry })) = index_hit(key, value) else {
        let range = Range { after: Some(key), before: None };
        let table = table_in(checks, range);
        report.add(
            DamageKind::IndexEntry,
            table.as_deref(),
            format!("an entry is malformed: its key is {key:02x?}"),
        );
        return;
    };
    let Some(check) = checks.tables.get_mut(&table) else {
        checks.leftover_entries += 1;
        return;
    };
    let group = check.group_of(&primary);
    let (Some(group), Some(found)) = (group, check.indexes.get_mut(&index)) else {
        checks.leftover_entries += 1;
        return;
    };
    report.table(&check.name).index_entries += 1;
    if found.is_ready(group) {
        found.found.add(&entry_key, &primary, entry);
    }
}

fn table_in(checks: &TableChecks, range: Range<'_>) -> Option<String> {
    let (id, _) = row_place(range.after.or(range.before)?)?;
    checks.tables.get(&id).map(|check| check.name.clone())
}

/// An index whose entries differ from its rows.
struct Place<'a> {
    open: &'a OpenEngine,
    check: &'a TableCheck,
    table: TableId,
    index: IndexId,
}

impl Place<'_> {
    /// Looks up the entries of every row.
    fn check_rows(&self, report: &mut Report) -> Result<(), CheckError> {
        let Some(index) = self.check.indexes.get(&self.index) else { return Ok(()) };
        let (from, until) = bounds(self.table.as_bytes());
        walk(&self.open.engine, Space::Rows, (&from, until.as_deref()), &mut |found| {
            let Found::Pair { key, value } = found else { return };
            let Some((_, primary)) = row_place(key) else { return };
            let Some(group) = self.check.group_of(&primary) else { return };
            if !index.is_ready(group) {
                return;
            }
            let row = read_row(&self.open.rows, key, &primary, value, &self.check.primary_key);
            let Ok((_, object)) = row else { return };
            for (entry_key, entry) in index.def.entries(&object) {
                let key = self.entry_key(&entry_key, &primary);
                // A block that cannot be read is reported already.
                let Ok(stored) = self.open.engine.get(Space::Index, &key) else { continue };
                let found = stored.and_then(|value| index_hit(&key, &value)).map(|(_, _, hit)| hit.entry);
                if found != Some(entry) {
                    let name = &index.name;
                    let fault = if found.is_some() { "a wrong entry" } else { "no entry" };
                    let what = format!("row {primary} has {fault} in index `{name}`");
                    report.add(DamageKind::IndexEntry, Some(&self.check.name), what);
                }
            }
        })?;
        Ok(())
    }

    /// Looks up the row of every entry.
    fn check_entries(&self, report: &mut Report) -> Result<(), CheckError> {
        let Some(index) = self.check.indexes.get(&self.index) else { return Ok(()) };
        let prefix = [&self.table.as_bytes()[..], &self.index.0.to_be_bytes()].concat();
        let (from, until) = bounds(&prefix);
        walk(&self.open.engine, Space::Index, (&from, until.as_deref()), &mut |found| {
            let Found::Pair { key, value } = found else { return };
            let Some((_, _, hit)) = index_hit(key, value) else { return };
            let is_ready = self.check.group_of(&hit.primary).is_some_and(|group| index.is_ready(group));
            if is_ready && let Some(fault) = self.fault_of(&hit) {
                let what = format!("index `{}` has an entry of row {}, {fault}", index.name, hit.primary);
                report.add(DamageKind::IndexEntry, Some(&self.check.name), what);
            }
        })?;
        Ok(())
    }

    /// Why an entry is wrong. `None` if its row has it, or cannot be read, which is reported already.
    fn fault_of(&self, hit: &IndexHit) -> Option<&'static str> {
        let index = self.check.indexes.get(&self.index)?;
        let key = [&self.table.as_bytes()[..], hit.primary.as_bytes()].concat();
        let Some(value) = self.open.engine.get(Space::Rows, &key).ok()? else {
            return Some("which does not exist");
        };
        let row = read_row(&self.open.rows, &key, &hit.primary, &value, &self.check.primary_key);
        let (_, object) = row.ok()?;
        let is_known = |(key, _): &(Bytes, _)| *key == hit.key;
        match index.def.entries(&object).iter().any(is_known) {
            // A wrong number of values is reported with the row.
            true => None,
            false => Some("which has no such value"),
        }
    }

    fn entry_key(&self, key: &[u8], primary: &PrimaryKey) -> Vec<u8> {
        [&self.table.as_bytes()[..], &self.index.0.to_be_bytes(), key, primary.as_bytes()].concat()
    }
}

/// The first key that begins with `prefix`, and the first one after all that do.
fn bounds(prefix: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut until = prefix.to_vec();
    while let Some(last) = until.pop() {
        if last < u8::MAX {
            until.push(last + 1);
            return (prefix.to_vec(), Some(until));
        }
    }
    (prefix.to_vec(), None)
}
