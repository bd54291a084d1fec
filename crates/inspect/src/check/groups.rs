//! The position of each group in the engine against its log, and the entries of the log.

use io::real::RealFiles;
use log::file::{ExaminedGroup, ExaminedLog};
use log::{GroupId, Lsn};
use shard::LogReplay;

use super::CheckError;
use super::records::Records;
use crate::catalog::Tables;
use crate::folder::Folder;
use crate::report::{DamageKind, Report};

pub(super) fn check(
    folder: &Folder,
    log: &ExaminedLog,
    records: &Records,
    tables: &Tables,
    report: &mut Report,
) -> Result<(), CheckError> {
    for group in log.groups.iter().filter(|group| !group.rows_invalid && !records.is_damaged) {
        check_position(group, records.position(group.group), tables, report);
    }
    if log.damages.is_empty() && !records.is_damaged {
        check_lost_groups(folder, log, records, tables, report)?;
    }
    for group in log.groups_with_entries() {
        let (table, mut replay) = (table_name(tables, group), LogReplay::after(None));
        log.entries(&RealFiles, group, Lsn(0), |lsn, entry| {
            if let Some(replay) = &mut replay
                && let Err(cause) = replay.changes(lsn, entry)
            {
                report.add(DamageKind::Entry, table.as_deref(), format!("group {group}: {cause}"));
            }
        })
        .map_err(CheckError::Log)?;
    }
    Ok(())
}

fn check_position(group: &ExaminedGroup, applied: Lsn, tables: &Tables, report: &mut Report) {
    let ExaminedGroup { group, begins_after, last, .. } = group;
    let what = match () {
        () if applied < *begins_after => format!(
            "the rows of group {group} include its log up to entry {applied}, but the log begins after entry \
             {begins_after}: writes in between are lost"
        ),
        () if applied > *last => format!(
            "the rows of group {group} include its log up to entry {applied}, but the log ends at entry {last}: durable \
             entries are lost"
        ),
        () => return,
    };
    report.add(DamageKind::Position, table_name(tables, *group).as_deref(), what);
}

/// A group with rows whose log is gone.
fn check_lost_groups(
    folder: &Folder,
    log: &ExaminedLog,
    records: &Records,
    tables: &Tables,
    report: &mut Report,
) -> Result<(), CheckError> {
    let identity = cluster::Identity::load(&RealFiles, folder.path()).ok().flatten();
    let Some(own) = identity.map(|identity| identity.server) else { return Ok(()) };
    let is_known = |group: GroupId| log.groups.iter().any(|known| known.group == group);
    for table in &tables.catalog.tables {
        for shard in &table.shards {
            let is_here =
                shard.replicas.is_empty() || shard.replicas.iter().any(|replica| replica.server == own);
            if is_here && records.applied.contains_key(&shard.group) && !is_known(shard.group) {
                let what = format!("the log has nothing of group {}, which has rows here", shard.group);
                report.add(DamageKind::Position, Some(&tables.name(table.id)), what);
            }
        }
    }
    Ok(())
}

fn table_name(tables: &Tables, group: GroupId) -> Option<String> {
    tables.table_of(group).map(|table| tables.name(table))
}
