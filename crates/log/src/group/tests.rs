//! A group as it is opened after a restart.

use std::path::Path;
use std::sync::Arc;

use io::sim::{SimFiles, SimRandom};

use super::*;
use crate::file::{FileStore, StoreOptions};
use crate::member::Members;

#[test]
fn entries_that_left_the_log_and_did_not_change_rows_are_not_waited_for() {
    let random = SimRandom::new(1);
    let options = StoreOptions::default();
    let files = Arc::new(SimFiles::new(1));
    let mut store = FileStore::open(files, Arc::new(random.clone()), Path::new("/log"), options).unwrap();
    let mut stored = StoredGroup { peer: 1, ..StoredGroup::default() };
    // The last row changed at 10, then the members did; all of it was applied before the restart.
    stored.outline.begin_after(16, 3, 10);
    stored.outline.members = Members::first(vec![PeerId(1), PeerId(2), PeerId(3)]);
    let mut effects = Effects::default();
    let mut step = Step { store: &mut store, append: 1, synced: 0, random: &random, effects: &mut effects };
    let group = Group::open(GroupId(4), &stored, Lsn(10), &mut step).unwrap();
    assert_eq!(group.status().applied, Lsn(16));
    assert!(!group.status().needs_rows);
}
