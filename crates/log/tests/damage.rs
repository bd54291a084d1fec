//! A log whose files were changed reports the damage, or still has every entry.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::Files;
use io::real::RealClock;
use io::sim::{Decay, Fault, SimFiles, SimRandom};
use rekindle_log::file::{FileLog, FileLogOptions, StoreOptions};
use rekindle_log::{
    Applier, ApplyError, Durability, Entry, GroupId, InitialConfig, Interruption, Log, LogError, Lsn,
    ProposeError, Refusal,
};

const DIR: &str = "/log";
const GROUP: GroupId = GroupId(3);

#[derive(Default)]
struct Engine(Mutex<BTreeMap<Lsn, Bytes>>);

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        let entries = entries.iter().map(|entry| (entry.lsn, entry.payload.clone()));
        self.0.lock().unwrap().extend(entries);
        Ok(())
    }

    fn applied(&self, _group: GroupId) -> Lsn {
        self.0.lock().unwrap().last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn)
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

fn open(files: &SimFiles, options: FileLogOptions) -> Result<(Arc<Engine>, FileLog), LogError> {
    let engine = Arc::new(Engine::default());
    let applier = Arc::clone(&engine) as Arc<dyn Applier>;
    let clock = Arc::new(RealClock::new());
    let log = FileLog::open(Arc::new(files.of_process()), clock, Path::new(DIR), applier, options)?;
    Ok((engine, log))
}

fn small_segments() -> FileLogOptions {
    let store = StoreOptions { segment_bytes: 600 };
    let random = Arc::new(SimRandom::new(1));
    FileLogOptions { store, random, ..FileLogOptions::default() }
}

fn propose(log: &FileLog, durability: Durability) -> Result<Lsn, ProposeError> {
    propose_payload(log, Bytes::from_static(b"an entry"), durability)
}

fn propose_payload(log: &FileLog, payload: Bytes, durability: Durability) -> Result<Lsn, ProposeError> {
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |result| drop(tell.send(result)));
    log.propose(GROUP, payload, durability, done);
    told.recv().unwrap()
}

/// A log of a few segments that was closed in an orderly way, and its contents.
fn closed_log() -> (SimFiles, usize) {
    const ENTRIES: usize = 24;
    let files = SimFiles::new(1);
    let (_, log) = open(&files, small_segments()).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    for _ in 0..ENTRIES {
        propose(&log, Durability::Hard).unwrap();
    }
    drop(log);
    (files, ENTRIES)
}

fn segments(files: &SimFiles) -> Vec<PathBuf> {
    let paths = files.list(Path::new(DIR)).unwrap();
    paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "segment")).collect()
}

/// The number of entries in the log, or why it does not open.
fn entries(files: &SimFiles) -> Result<usize, LogError> {
    payloads(files).map(|payloads| payloads.len())
}

/// The entries in the log, or why it does not open.
fn payloads(files: &SimFiles) -> Result<Vec<Bytes>, LogError> {
    let (engine, log) = open(files, small_segments())?;
    log.open_group(GROUP, Lsn(0), InitialConfig::Single)?;
    Ok(engine.0.lock().unwrap().values().cloned().collect())
}

/// The seeds of a test with random faults: so many, or `LOG_FAULT_SEEDS`, from `LOG_FAULT_START` on.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let given = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let start = given("LOG_FAULT_START").unwrap_or(0);
    start..start + given("LOG_FAULT_SEEDS").unwrap_or(count)
}

/// Whether a log with a fault has all entries that were acknowledged, in order. Otherwise it must name a file.
#[track_caller]
fn is_whole(files: &SimFiles, acknowledged: &[Bytes], what: &str) -> bool {
    match payloads(files) {
        Ok(found) => {
            assert!(found.starts_with(acknowledged), "{what}: {found:?} instead of {acknowledged:?}");
            true
        }
        Err(LogError::Damaged { segment, .. } | LogError::Version { segment, .. }) => {
            assert!(files.list(Path::new(DIR)).unwrap().contains(&segment), "{what}: {segment:?}");
            false
        }
        Err(LogError::Missing { .. }) => false,
        Err(other) => panic!("{what}: {other:?}"),
    }
}

/// A log to which entries are appended until it stops, with a fault at one of them, if any, and the entries that were
/// acknowledged. `end` happens before the log is closed.
fn log_with_fault(seed: u64, fault: Option<Fault>, end: fn(&SimFiles)) -> (SimFiles, Vec<Bytes>) {
    let (files, random) = (SimFiles::new(seed), SimRandom::new(!seed));
    let (_, log) = open(&files, small_segments()).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    let fault_at = random.below(30);
    let mut acknowledged = Vec::new();
    for number in 0..40 {
        if let Some(fault) = fault.filter(|_| number == fault_at) {
            files.inject(fault);
        }
        let filling = "x".repeat(random.below(200) as usize);
        let payload = Bytes::from(format!("{number} {filling}"));
        match propose_payload(&log, payload.clone(), Durability::Hard) {
            Ok(_) => acknowledged.push(payload),
            Err(_) => break,
        }
    }
    // A log that only appends does not read.
    let has_failed = !files.has_pending_fault() || fault == Some(Fault::Read);
    assert!(has_failed, "seed {seed}: {fault:?} had no occasion");
    end(&files);
    (files, acknowledged)
}

#[test]
fn an_append_that_the_disk_stores_wrongly_is_found() {
    let (mut found, mut whole) = (0, 0);
    for seed in seeds(150) {
        for fault in Fault::SILENT {
            let (files, acknowledged) = log_with_fault(seed, Some(fault), |_| {});
            let what = format!("{fault:?}, LOG_FAULT_START={seed} LOG_FAULT_SEEDS=1");
            match is_whole(&files, &acknowledged, &what) {
                true => whole += 1,
                false => found += 1,
            }
        }
    }
    // A torn append may be whole by chance, and a high-water mark is soon replaced.
    assert!(found > 2 * whole, "{found} found, {whole} whole");
}

#[test]
fn a_failure_of_the_disk_loses_no_acknowledged_entry() {
    for seed in seeds(100) {
        for fault in Fault::REPORTED {
            let (files, acknowledged) = log_with_fault(seed, Some(fault), SimFiles::crash);
            let what = format!("{fault:?}, LOG_FAULT_START={seed} LOG_FAULT_SEEDS=1");
            assert!(is_whole(&files, &acknowledged, &what), "{what}: damaged");
        }
    }
}

#[test]
fn decay_of_a_closed_log_is_found() {
    let (mut found, mut whole) = (0, 0);
    for seed in seeds(100) {
        for decay in Decay::ALL {
            let (files, acknowledged) = log_with_fault(seed, None, |_| {});
            let paths = files.list(Path::new(DIR)).unwrap();
            let path = &paths[SimRandom::new(seed).below(paths.len() as u64) as usize];
            let what = format!("{decay:?} of {path:?}, LOG_FAULT_START={seed} LOG_FAULT_SEEDS=1");
            let changed = files.decay(path, decay).unwrap();
            match is_whole(&files, &acknowledged, &what) {
                true => whole += u64::from(changed),
                false => found += 1,
            }
        }
    }
    assert!(found > 20 * whole, "{found} found, {whole} whole");
}

#[test]
fn any_changed_byte_of_a_closed_log_is_found_or_does_not_matter() {
    let (files, count) = closed_log();
    let paths = segments(&files);
    assert!(paths.len() > 2, "{} segments", paths.len());
    let (mut found, mut harmless) = (0, 0);
    for path in &paths {
        let bytes = files.read(path).unwrap();
        for at in 0..bytes.len() {
            files.damage(path, |bytes| bytes[at] ^= 0x10).unwrap();
            match entries(&files) {
                Err(LogError::Damaged { segment, .. }) => {
                    assert!(paths.contains(&segment));
                    found += 1;
                }
                Err(LogError::Version { .. }) => found += 1,
                Ok(entries) => {
                    assert_eq!(entries, count, "byte {at} of {path:?}");
                    harmless += 1;
                }
                Err(other) => panic!("byte {at} of {path:?}: {other:?}"),
            }
            // Opening may have appended to the last segment: each time starts from the same bytes.
            let (fresh, _) = closed_log();
            for path in &files.list(Path::new(DIR)).unwrap() {
                match fresh.read(path) {
                    Ok(before) => files.damage(path, |bytes| *bytes = before).unwrap(),
                    Err(_) => files.remove(path).unwrap(),
                }
            }
        }
    }
    assert!(found > 20 * harmless, "{found} found, {harmless} harmless");
}

#[test]
fn damage_changes_nothing_on_disk() {
    let (files, _) = closed_log();
    let path = segments(&files).pop().unwrap();
    files.damage(&path, |bytes| bytes[100] ^= 1).unwrap();
    let before = files.read(&path).unwrap();
    for _ in 0..2 {
        assert!(matches!(entries(&files), Err(LogError::Damaged { .. })));
        assert_eq!(files.read(&path).unwrap(), before);
    }
}

#[test]
fn a_missing_or_exchanged_segment_is_found() {
    let (files, _) = closed_log();
    let paths = segments(&files);
    let (second, third) = (files.read(&paths[1]).unwrap(), files.read(&paths[2]).unwrap());
    files.damage(&paths[1], |bytes| *bytes = third.clone()).unwrap();
    assert!(matches!(entries(&files), Err(LogError::Damaged { .. })), "the next one's bytes");
    files.damage(&paths[1], |bytes| bytes.truncate(0)).unwrap();
    assert!(matches!(entries(&files), Err(LogError::Damaged { .. })), "no bytes");
    files.damage(&paths[1], |bytes| *bytes = second[..second.len() - 8].to_vec()).unwrap();
    assert!(matches!(entries(&files), Err(LogError::Damaged { .. })), "too few bytes");
    files.remove(&paths[1]).unwrap();
    assert!(matches!(entries(&files), Err(LogError::Damaged { .. })), "no file");
}

#[test]
fn a_log_without_its_newest_segment_is_refused_after_a_close_and_after_a_kill() {
    let (closed, _) = closed_log();
    let killed = SimFiles::new(1);
    let (_, log) = open(&killed, small_segments()).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    for _ in 0..24 {
        propose(&log, Durability::Hard).unwrap();
    }
    killed.end_process();
    drop(log);
    for files in [closed, killed] {
        let paths = segments(&files);
        files.remove(&paths[paths.len() - 1]).unwrap();
        let (last, newest) = (paths.len() as u64 - 1, paths.len() as u64);
        for _ in 0..2 {
            match entries(&files) {
                Err(LogError::Missing { last: found, newest: noted, .. }) => {
                    assert_eq!((found, noted), (last, newest));
                }
                other => panic!("{other:?}"),
            }
        }
        paths[..paths.len() - 1].iter().for_each(|path| files.remove(path).unwrap());
        assert!(matches!(entries(&files), Err(LogError::Missing { last: 0, .. })));
    }
}

#[test]
fn a_log_whose_durable_end_was_cut_off_is_refused() {
    let (files, count) = closed_log();
    let path = segments(&files).pop().unwrap();
    let whole = files.read(&path).unwrap();
    files.damage(&path, |bytes| bytes.truncate(whole.len() - 100)).unwrap();
    assert!(matches!(entries(&files), Err(LogError::Damaged { segment, .. }) if segment == path));
    files.damage(&path, |bytes| *bytes = whole).unwrap();
    assert_eq!(entries(&files).unwrap(), count);
}

#[test]
fn a_log_that_lost_power_continues_after_the_rows_of_its_engine() {
    let files = SimFiles::new(1);
    let options = FileLogOptions { soft_wait: Duration::from_secs(3600), ..small_segments() };
    let (_, log) = open(&files, options.clone()).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    propose(&log, Durability::Hard).unwrap();
    let last = propose(&log, Durability::Soft).unwrap();
    files.crash();
    drop(log);
    let (_, log) = open(&files, options).unwrap();
    // The engine had the soft write already. It is random whether the log still has it.
    log.open_group(GROUP, last, InitialConfig::Single).unwrap();
    assert!(propose(&log, Durability::Hard).unwrap() > last);
}

#[test]
fn an_engine_that_lost_entries_deleted_from_the_log_is_refused() {
    let (files, _) = closed_log();
    let options = FileLogOptions { log_bytes_max: 1, ..small_segments() };
    let (_, log) = open(&files, options.clone()).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    while log.stats().segments_deleted < 2 {
        propose(&log, Durability::Hard).unwrap();
    }
    drop(log);
    let (_, log) = open(&files, options).unwrap();
    assert!(matches!(log.open_group(GROUP, Lsn(1), InitialConfig::Single), Err(LogError::Gap { .. })));
}

#[test]
fn after_a_failed_fsync_no_entry_is_acknowledged() {
    let files = SimFiles::new(1);
    let (_, log) = open(&files, small_segments()).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    propose(&log, Durability::Hard).unwrap();
    files.inject(Fault::Sync);
    let waiting = propose(&log, Durability::Hard);
    assert!(matches!(waiting, Err(ProposeError::Indeterminate(Interruption::Disk(_)))), "{waiting:?}");
    for durability in [Durability::Hard, Durability::Soft] {
        let later = propose(&log, durability);
        assert!(matches!(later, Err(ProposeError::Definite(Refusal::Stopped))), "{later:?}");
    }
    assert!(matches!(log.open_group(GroupId(9), Lsn(0), InitialConfig::Single), Err(LogError::Stopped)));
}

#[test]
fn a_full_disk_refuses_and_recovers_by_itself() {
    let files = SimFiles::new(1);
    let options = FileLogOptions { soft_wait: Duration::from_millis(1), ..small_segments() };
    let (engine, log) = open(&files, options).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    files.inject(Fault::Full);
    let mut acknowledged = 0;
    while acknowledged < 10 {
        match propose(&log, Durability::Hard) {
            Ok(_) => acknowledged += 1,
            Err(ProposeError::Definite(Refusal::Full)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(engine.0.lock().unwrap().len(), 10);
}

#[test]
fn one_process_at_a_time() {
    let files = SimFiles::new(1);
    let (_, _log) = open(&files, small_segments()).unwrap();
    assert!(matches!(open(&files, small_segments()), Err(LogError::Locked { .. })));
}
