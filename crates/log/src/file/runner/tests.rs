//! What a runner asks of the thread that runs it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::sim::{Fault, SimClock, SimFiles, SimRandom};

use super::{Outside, Pace, Runner};
use crate::contract::{Applier, Entry, Nobody};
use crate::error::ApplyError;
use crate::file::store::{FileStore, StoreOptions};
use crate::lsn::{Durability, GroupId, Lsn};
use crate::member::Birth;
use crate::proposal::{Proposal, Work};

const GROUP: GroupId = GroupId(1);
const FSYNC: Duration = Duration::from_micros(200);
const PACE: Pace = Pace { soft_wait: Duration::from_millis(100), log_bytes_max: 1 << 20 };

/// An engine that keeps nothing.
struct Nothing;

impl Applier for Nothing {
    fn apply(&self, _: &[Entry]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn applied(&self, _: GroupId) -> Lsn {
        Lsn(0)
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

fn runner(files: &SimFiles, clock: &SimClock) -> Runner<FileStore> {
    let random = Arc::new(SimRandom::new(1));
    let store = FileStore::open(
        Arc::new(files.clone()),
        Arc::clone(&random) as _,
        Path::new("/log"),
        StoreOptions::default(),
    );
    let (mail, watch) = (Arc::new(Nobody), Arc::new(Nobody));
    let outside = Outside { applier: Arc::new(Nothing), clock: Arc::new(clock.clone()), random, mail, watch };
    let mut runner = Runner::new(store.unwrap(), outside, PACE);
    runner.open_group(GROUP, Lsn(0), &Birth::Alone).unwrap();
    runner.settle();
    runner
}

fn propose(runner: &mut Runner<FileStore>, count: usize) {
    let hard = || Work::Entry(Bytes::from_static(b"entry"), Durability::Hard);
    let proposal = |_| Proposal { group: GROUP, term: None, work: hard(), done: Box::new(|_| {}) };
    runner.turn(&mut (0..count).map(proposal).collect());
}

/// Three writers shared an fsync, so that company is expected when the first comes back.
fn runner_that_expects_company(files: &SimFiles) -> Runner<FileStore> {
    let clock = SimClock::new();
    let mut runner = runner(files, &clock);
    propose(&mut runner, 3);
    clock.advance(PACE.soft_wait);
    let syncing = runner.begin_sync().expect("three wait for an fsync");
    clock.advance(FSYNC);
    let result = syncing.run();
    runner.end_sync(syncing, result);
    propose(&mut runner, 1);
    runner
}

#[test]
fn company_is_waited_for_with_an_end() {
    let runner = runner_that_expects_company(&SimFiles::new(1));
    assert_eq!(runner.patience(), 2);
    assert!(runner.due().is_some(), "who waits for company knows until when");
}

#[test]
fn a_log_that_has_failed_waits_for_nobody() {
    let files = SimFiles::new(1);
    let mut runner = runner_that_expects_company(&files);
    files.inject(Fault::Append);
    propose(&mut runner, 1);
    assert!(runner.failure().is_some());
    assert_eq!(runner.due(), None);
    assert_eq!(runner.patience(), 1, "with nothing due, every proposal must be refused when it comes");
}
