//! The records about tables and groups, and the dictionaries.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::Space;
use log::{GroupId, Lsn};
use shard::LogReplay;
use storage::{Applied, FormatError, IndexBuild, IndexId, MetaRecord, TableId, meta_record};

use super::{CheckError, OpenEngine, report_range};
use crate::folder::Folder;
use crate::report::{DamageKind, Report};
use crate::walk::{Found, walk};

/// The undamaged records of the space `meta`.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub applied: BTreeMap<GroupId, Applied>,
    pub counts: BTreeMap<(TableId, GroupId), u64>,
    pub builds: BTreeMap<(TableId, GroupId, IndexId), IndexBuild>,
    /// Whether records may be missing or wrong.
    pub is_damaged: bool,
}

impl Records {
    /// The position up to which the engine has a group's log.
    pub(crate) fn position(&self, group: GroupId) -> Lsn {
        self.applied.get(&group).map(|applied| applied.lsn).unwrap_or_default()
    }

    fn add(&mut self, record: MetaRecord, report: &mut Report) {
        match record {
            MetaRecord::Version(_) => {}
            MetaRecord::Applied(group, applied) => {
                if LogReplay::after(Some(&applied)).is_none() {
                    self.is_damaged = true;
                    report.add(
                        DamageKind::Record,
                        None,
                        format!("the progress of group {group} is malformed"),
                    );
                }
                self.applied.insert(group, applied);
            }
            MetaRecord::Count(table, group, count) => drop(self.counts.insert((table, group), count.0)),
            MetaRecord::Build(table, group, index, build) => {
                self.builds.insert((table, group, index), build);
            }
            MetaRecord::Dictionary(..) => report.dictionaries += 1,
        }
    }
}

/// Reads every record. Fails if a later version has written the engine.
pub(super) fn check(folder: &Folder, open: &OpenEngine, report: &mut Report) -> Result<Records, CheckError> {
    let (records, newer) = read(open, report)?;
    match newer {
        Some(cause) => Err(folder.newer(cause).into()),
        None => Ok(records),
    }
}

/// Reads every record, and whether a later version has written the engine.
pub(crate) fn read(open: &OpenEngine, report: &mut Report) -> Result<(Records, Option<String>), CheckError> {
    let (mut records, mut newer) = (Records::default(), None);
    walk(&open.engine, Space::Meta, (&[], None), &mut |found| {
        let (Found::Pair { key, value } | Found::Doubtful { key, value }) = found else {
            records.is_damaged = true;
            return report_range(found, Space::Meta, &|_| None, report);
        };
        let is_doubtful = matches!(found, Found::Doubtful { .. });
        match meta_record(key, &Bytes::copy_from_slice(value)) {
            // Only dictionaries have a checksum of their own.
            Ok(record) if !is_doubtful || matches!(record, MetaRecord::Dictionary(..)) => {
                records.add(record, report);
            }
            Ok(_) => {}
            Err(FormatError::Newer { .. }) if is_doubtful => {}
            Err(cause @ FormatError::Newer { .. }) => newer = Some(cause.to_string()),
            Err(cause) => {
                let is_dictionary = key.first() == Some(&4);
                let kind = if is_dictionary { DamageKind::Dictionary } else { DamageKind::Record };
                records.is_damaged |= !is_dictionary;
                report.add(kind, None, cause.to_string());
            }
        }
    })?;
    Ok((records, newer))
}
