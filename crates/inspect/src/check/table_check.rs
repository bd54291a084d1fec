//! Counts the rows and sums up the index entries of each table.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use cluster::{StoredCatalog, StoredShard, TableConfig};
use datum::{Object, PrimaryKey};
use foldhash::fast::FixedState;
use log::GroupId;
use log::file::ExaminedLog;
use shard::IndexDef;
use storage::{IndexBuild, IndexEntry, IndexId, TableId};

use super::records::Records;
use crate::catalog::Tables;
use crate::report::{DamageKind, Report};

/// The sum of a set of index entries, in any order: two sets with the same sum are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EntrySum {
    entries: u64,
    sums: [u64; 2],
}

impl EntrySum {
    pub(super) fn add(&mut self, key: &[u8], primary: &PrimaryKey, entry: IndexEntry) {
        self.entries += 1;
        let content = (key, primary.as_bytes(), entry.times, entry.truncated);
        for (seed, sum) in [11, 47].into_iter().zip(&mut self.sums) {
            *sum = sum.wrapping_add(FixedState::with_seed(seed).hash_one(content));
        }
    }
}

/// The expected and the found entries of an index.
pub(super) struct IndexCheck {
    pub name: String,
    pub def: IndexDef,
    /// The groups in whose ranges it is built.
    ready: BTreeSet<GroupId>,
    pub expected: EntrySum,
    pub found: EntrySum,
}

/// The expected and the found rows of a shard.
struct ShardCheck {
    shard: StoredShard,
    /// Whether this directory has its rows.
    is_held: bool,
    /// The number of rows in its record.
    count: u64,
    rows: u64,
}

/// The state of the check of a table.
pub(super) struct TableCheck {
    pub name: String,
    pub primary_key: String,
    pub indexes: BTreeMap<IndexId, IndexCheck>,
    shards: Vec<ShardCheck>,
    /// Whether rows could not be read, so that they cannot be counted.
    pub is_damaged: bool,
}

/// All tables of the catalog, and the catalog's own.
pub(super) struct TableChecks {
    pub tables: BTreeMap<TableId, TableCheck>,
    /// Rows of tables that the catalog does not have, and of shards that are not here.
    pub leftover_rows: u64,
    pub leftover_entries: u64,
    can_count: bool,
}

impl TableChecks {
    pub(super) fn new(tables: &Tables, records: &Records, log: Option<&ExaminedLog>) -> TableChecks {
        let is_valid = |group: GroupId| match log {
            Some(log) if log.damages.is_empty() => {
                log.groups.iter().any(|found| found.group == group && !found.rows_invalid)
            }
            _ => true,
        };
        let is_held = |group| records.applied.contains_key(&group) && is_valid(group);
        let mut checks: BTreeMap<TableId, TableCheck> = BTreeMap::new();
        for table in &tables.catalog.tables {
            checks.insert(table.id, TableCheck::new(table, tables.name(table.id), records, &is_held));
        }
        let own = StoredCatalog::own_table();
        checks.insert(own, TableCheck::catalog(records, is_held(GroupId(0))));
        let can_count = !records.is_damaged;
        TableChecks { tables: checks, leftover_rows: 0, leftover_entries: 0, can_count }
    }

    /// Compares the numbers of rows with their records.
    pub(super) fn compare_counts(&self, report: &mut Report) {
        for table in self.tables.values().filter(|table| self.can_count && !table.is_damaged) {
            for ShardCheck { shard, count, rows, .. } in table.shards.iter().filter(|shard| shard.is_held) {
                if rows != count {
                    let what = format!("group {} has {rows} rows, and its record says {count}", shard.group);
                    report.add(DamageKind::Count, Some(&table.name), what);
                }
            }
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.leftover_rows + self.leftover_entries > 0 {
            notes.push(format!(
                "{} rows and {} index entries belong to tables or shards that are not here any more; the server deletes them",
                self.leftover_rows, self.leftover_entries
            ));
        }
        notes
    }
}

impl TableCheck {
    fn new(
        table: &TableConfig,
        name: String,
        records: &Records,
        is_held: &dyn Fn(GroupId) -> bool,
    ) -> TableCheck {
        let shards: Vec<ShardCheck> = StoredCatalog::shards_of(table)
            .into_iter()
            .map(|shard| {
                let count = records.counts.get(&(table.id, shard.group)).copied().unwrap_or(0);
                ShardCheck { is_held: is_held(shard.group), shard, count, rows: 0 }
            })
            .collect();
        let ready = |index: IndexId| {
            let is_ready =
                |group: &GroupId| records.builds.get(&(table.id, *group, index)) == Some(&IndexBuild::Ready);
            shards
                .iter()
                .filter(|shard| shard.is_held)
                .map(|shard| shard.shard.group)
                .filter(is_ready)
                .collect()
        };
        let names: BTreeMap<IndexId, String> =
            table.indexes.all().into_iter().map(|index| (index.id, index.name.to_string())).collect();
        let index = |def: IndexDef| {
            let name = names.get(&def.id()).cloned().unwrap_or_default();
            let (expected, found) = (EntrySum::default(), EntrySum::default());
            (def.id(), IndexCheck { name, ready: ready(def.id()), def, expected, found })
        };
        let indexes = table.indexes.defs().list.into_iter().map(index).collect();
        TableCheck { name, primary_key: table.primary_key.to_string(), indexes, shards, is_damaged: false }
    }

    fn catalog(records: &Records, is_held: bool) -> TableCheck {
        let shard = StoredShard { group: GroupId(0), range: datum::KeyRange::all() };
        let count = records.counts.get(&(StoredCatalog::own_table(), GroupId(0))).copied().unwrap_or(0);
        TableCheck {
            name: "the catalog".to_owned(),
            primary_key: "id".to_owned(),
            indexes: BTreeMap::new(),
            shards: vec![ShardCheck { shard, is_held, count, rows: 0 }],
            is_damaged: false,
        }
    }

    /// The group whose range has this key, if its rows are held here.
    pub(super) fn group_of(&self, key: &PrimaryKey) -> Option<GroupId> {
        let held = self.shards.iter().filter(|shard| shard.is_held);
        held.map(|held| &held.shard).find(|shard| shard.range.contains(key)).map(|shard| shard.group)
    }

    /// Counts a row and the entries that it must have. Returns false if its shard is not held here.
    pub(super) fn add_row(&mut self, key: &PrimaryKey, row: &Object) -> bool {
        let held = self.shards.iter_mut().filter(|shard| shard.is_held);
        let Some(shard) = held.into_iter().find(|held| held.shard.range.contains(key)) else { return false };
        shard.rows += 1;
        let group = shard.shard.group;
        for index in self.indexes.values_mut().filter(|index| index.ready.contains(&group)) {
            for (entry_key, entry) in index.def.entries(row) {
                index.expected.add(&entry_key, key, entry);
            }
        }
        true
    }
}

impl IndexCheck {
    /// Whether the index is built in the range of a group.
    pub(super) fn is_ready(&self, group: GroupId) -> bool {
        self.ready.contains(&group)
    }
}
