//! A process whose changes are recorded, killed in the middle: the record fits the directory, synced data survives every
//! power cut, and unsynced data does not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, abort};

use powercut::{Disk, Node, Tree};
use rand::SeedableRng;
use rand::rngs::StdRng;

const CHILD: &str = "REKINDLE_POWERCUT_CHILD";
const SEEDS: u64 = 100;

fn recorder() -> PathBuf {
    let own = env::current_exe().unwrap();
    let folder = own.parent().unwrap();
    let name = "librekindle_powercut_recorder.so";
    let mut places = [folder.join(name), folder.join("..").join(name)].into_iter();
    places
        .find(|path| path.exists())
        .expect("`cargo build --release -p rekindle-powercut-recorder` makes the library")
}

/// Runs the test `child` in another process with this argument.
fn run_child(what: &str) -> (tempfile::TempDir, Vec<u8>, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap().join("data");
    let journal = folder.path().join("journal");
    fs::create_dir(&root).unwrap();
    let status = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env("LD_PRELOAD", recorder())
        .env("REKINDLE_POWERCUT_ROOT", &root)
        .env("REKINDLE_POWERCUT_JOURNAL", &journal)
        .env(CHILD, format!("{what}:{}", root.display()))
        .output()
        .unwrap();
    assert!(!status.status.success(), "the child ends as if it were killed");
    let found = Tree::read(&root).unwrap();
    (folder, fs::read(journal).unwrap(), found)
}

/// Does nothing unless it is the child of another test.
#[test]
fn child() {
    let Ok(text) = env::var(CHILD) else { return };
    let (what, root) = text.split_once(':').unwrap();
    let root = Path::new(root);
    match what {
        "changes" => change_files(root),
        _ => drop(fs::copy("/proc/self/exe", root.join("copy"))),
    }
    abort();
}

fn change_files(root: &Path) {
    fs::create_dir(root.join("d")).unwrap();
    let mut synced = File::create(root.join("d/synced")).unwrap();
    synced.write_all(b"synced").unwrap();
    synced.sync_data().unwrap();
    fs::write(root.join("d/temporary"), b"new").unwrap();
    File::open(root.join("d/temporary")).unwrap().sync_all().unwrap();
    fs::rename(root.join("d/temporary"), root.join("d/named")).unwrap();
    File::open(root.join("d")).unwrap().sync_all().unwrap();
    File::open(root).unwrap().sync_all().unwrap();
    // From here on nothing is synced.
    let mut appended = File::options().append(true).open(root.join("d/synced")).unwrap();
    appended.write_all(&[b'x'; 2000]).unwrap();
    assert!(File::open(root.join("d/missing")).is_err());
    assert!(fs::remove_file(root.join("d/missing")).is_err());
    fs::remove_file(root.join("d/named")).unwrap();
    fs::write(root.join("unsynced"), b"unsynced").unwrap();
    appended.set_len(1000).unwrap();
}

#[test]
fn synced_data_survives_and_unsynced_data_may_not() {
    let (_folder, journal, found) = run_child("changes");
    let mut disk = Disk::new(&Tree::default(), None);
    assert_eq!(disk.replay(&journal).unwrap(), journal.len());
    disk.reconcile(&found).unwrap();
    let cuts = (0..SEEDS).map(|seed| disk.cut_power(&found, &mut StdRng::seed_from_u64(seed)));
    let (mut kept, mut removed) = (0, 0);
    for (seed, tree) in cuts.enumerate() {
        let Some(Node::File(bytes)) = tree.0.get("d/synced") else {
            panic!("seed {seed}: {:?}", tree.0.keys())
        };
        assert!(bytes.starts_with(b"synced"), "seed {seed}");
        assert!(bytes[6..].iter().all(|byte| [0, b'x'].contains(byte)), "seed {seed}");
        let named = tree.0.get("d/named");
        assert!(named.is_none_or(|node| *node == Node::File(b"new".to_vec())), "seed {seed}");
        removed += usize::from(named.is_none());
        kept += usize::from(tree.0.contains_key("unsynced"));
    }
    assert!((1..100).contains(&removed) && (1..100).contains(&kept), "{removed} removed, {kept} kept");
}

#[test]
fn a_kind_of_change_without_a_record_is_refused() {
    let (_folder, journal, _) = run_child("copy");
    let error = Disk::new(&Tree::default(), None).replay(&journal).unwrap_err().to_string();
    assert!(error.contains("is not recorded: copy_file_range of \"copy\""), "{error}");
}
