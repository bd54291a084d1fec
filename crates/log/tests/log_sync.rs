//! Fsyncs of the log through [`LogSync`], without a step of the log, and their failures.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use io::real::RealClock;
use io::sim::{Fault, Hang, SimFiles};
use rekindle_log::file::{FileLog, FileLogOptions, StoreOptions};
use rekindle_log::{
    Applier, ApplyError, Durability, Entry, GroupId, InitialConfig, Log, LogSync, Lsn, ProposeError, Refusal,
};

const GROUP: GroupId = GroupId(3);
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Counts entries, and keeps the [`LogSync`] of the log.
#[derive(Default)]
struct Engine {
    applied: AtomicU64,
    log: OnceLock<LogSync>,
}

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        self.applied.fetch_add(entries.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    fn applied(&self, _: GroupId) -> Lsn {
        Lsn(0)
    }

    fn set_log_sync(&self, log: LogSync) {
        assert!(self.log.set(log).is_ok(), "called once");
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

/// A log that does not fsync soft entries on its own, and its [`LogSync`].
fn log_on(files: &SimFiles, segment_bytes: u64) -> (FileLog, LogSync) {
    let (log, engine) = log_and_engine(files, segment_bytes);
    let log_sync = engine.log.get().expect("the applier has it before a group opens").clone();
    (log, log_sync)
}

fn log_and_engine(files: &SimFiles, segment_bytes: u64) -> (FileLog, Arc<Engine>) {
    let engine = Arc::<Engine>::default();
    let options = FileLogOptions {
        store: StoreOptions { segment_bytes },
        soft_wait: Duration::from_secs(3600),
        ..FileLogOptions::default()
    };
    let (files, clock) = (Arc::new(files.of_process()), Arc::new(RealClock::new()));
    let log = FileLog::open(files, clock, Path::new("/log"), engine.clone(), options).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    (log, engine)
}

fn propose(log: &FileLog, payload: &'static [u8], durability: Durability) -> Receiver<Answer> {
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |result| drop(sender.send(result)));
    log.propose(GROUP, Bytes::from_static(payload), durability, done);
    receiver
}

type Answer = Result<Lsn, ProposeError>;

#[track_caller]
fn answer(receiver: &Receiver<Answer>) -> Answer {
    receiver.recv_timeout(WAIT_TIMEOUT).expect("every proposal is answered")
}

/// The number of entries that would survive a power loss at this moment.
fn survive(files: &SimFiles) -> u64 {
    files.crash();
    let (_log, engine) = log_and_engine(files, 1 << 20);
    engine.applied.load(Ordering::SeqCst)
}

#[test]
fn applied_entries_survive_a_power_loss_after_a_sync() {
    // An unsynced tail sometimes survives.
    let mut lost = 0;
    for seed in 0..20 {
        for syncs in [true, false] {
            let files = SimFiles::new(seed);
            let (log, log_sync) = log_on(&files, 1 << 20);
            answer(&propose(&log, b"hard", Durability::Hard)).unwrap();
            answer(&propose(&log, b"soft", Durability::Soft)).unwrap();
            if syncs {
                log_sync.sync().unwrap();
            }
            let found = survive(&files);
            assert!(found == 2 || !syncs, "seed {seed}: {found} of 2");
            lost += u64::from(found < 2);
        }
    }
    assert!(lost > 0, "without a sync, entries are lost");
}

#[test]
fn earlier_segments_are_durable_as_well() {
    for seed in 0..20 {
        let files = SimFiles::new(seed);
        let (log, log_sync) = log_on(&files, 500);
        for _ in 0..40 {
            answer(&propose(&log, b"a soft entry of some bytes", Durability::Soft)).unwrap();
        }
        assert!(log.stats().segments > 3);
        log_sync.sync().unwrap();
        assert_eq!(survive(&files), 40, "seed {seed}");
    }
}

#[test]
fn after_a_failed_sync_the_fsyncs_of_the_log_fail_as_well() {
    let files = SimFiles::new(1);
    let (log, log_sync) = log_on(&files, 1 << 20);
    answer(&propose(&log, b"soft", Durability::Soft)).unwrap();
    files.inject(Fault::Sync);
    log_sync.sync().unwrap_err();
    // From now on the disk reports success, as it does after it has reported a failure once.
    let outcome = answer(&propose(&log, b"hard", Durability::Hard));
    assert!(matches!(&outcome, Err(cause) if !cause.is_definite()), "{outcome:?}");
    let began = Instant::now();
    while log.stopped().is_none() && began.elapsed() < WAIT_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(log.stopped().is_some());
    let refused = answer(&propose(&log, b"later", Durability::Soft));
    assert!(matches!(refused, Err(ProposeError::Definite(Refusal::Stopped))), "{refused:?}");
    log_sync.sync().unwrap_err();
}

#[test]
fn after_a_failed_fsync_of_the_log_a_sync_fails_as_well() {
    let files = SimFiles::new(1);
    let (log, log_sync) = log_on(&files, 1 << 20);
    answer(&propose(&log, b"hard", Durability::Hard)).unwrap();
    log_sync.sync().unwrap();
    files.inject(Fault::Sync);
    answer(&propose(&log, b"lost", Durability::Hard)).unwrap_err();
    log_sync.sync().unwrap_err();
}

#[test]
fn a_sync_waits_for_a_disk_that_hangs_while_the_log_continues() {
    let files = SimFiles::new(1);
    let (log, log_sync) = log_on(&files, 1 << 20);
    answer(&propose(&log, b"soft", Durability::Soft)).unwrap();
    files.hang(Some(Hang::Syncs));
    let (sender, receiver) = mpsc::channel();
    let waiting = std::thread::spawn(move || sender.send(log_sync.sync().is_ok()).unwrap());
    for _ in 0..100 {
        answer(&propose(&log, b"soft", Durability::Soft)).unwrap();
    }
    receiver.try_recv().expect_err("the fsync has not returned");
    files.hang(None);
    assert!(receiver.recv_timeout(WAIT_TIMEOUT).unwrap());
    waiting.join().unwrap();
}

#[test]
fn a_sync_after_the_log_has_ended_needs_no_fsync() {
    let files = SimFiles::new(1);
    let (log, log_sync) = log_on(&files, 1 << 20);
    answer(&propose(&log, b"soft", Durability::Soft)).unwrap();
    drop(log);
    // An fsync would fail.
    files.inject(Fault::Sync);
    log_sync.sync().unwrap();
}
