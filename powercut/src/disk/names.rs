//! The durable entries of directories, and the changes since then.

use std::collections::{BTreeMap, HashMap};

use rand::Rng;
use rand::rngs::StdRng;

/// A directory, by number; the root is the first.
pub(super) type DirId = usize;
/// A file, by number.
pub(super) type FileId = usize;

pub(super) const ROOT: DirId = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Dir(DirId),
    File(FileId),
}

/// A name inside a directory.
type Place = (DirId, String);
type Entries = HashMap<DirId, BTreeMap<String, Entry>>;

/// One change of names. It survives a power loss as a whole or not at all.
#[derive(Clone, Debug)]
struct Change {
    at: u64,
    removed: Option<Place>,
    added: Option<(Place, Entry)>,
}

/// Every directory of the tree, twice: durable, and as a process sees it.
#[derive(Debug, Default)]
pub(super) struct Names {
    current: Entries,
    durable: Entries,
    /// The changes since then, in order.
    pending: Vec<Change>,
    dirs: usize,
}

impl Names {
    /// A number for a new directory.
    pub(super) fn new_dir(&mut self) -> DirId {
        self.dirs += 1;
        self.dirs
    }

    /// Adds a name that is durable.
    pub(super) fn add_durable(&mut self, path: &str, entry: Entry) -> Option<()> {
        let (dir, name) = self.place(path)?;
        self.current.entry(dir).or_default().insert(name.clone(), entry);
        self.durable.entry(dir).or_default().insert(name, entry);
        Some(())
    }

    /// The file or directory at a path. The root has the empty path.
    pub(super) fn find(&self, path: &str) -> Option<Entry> {
        let mut found = Entry::Dir(ROOT);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Entry::Dir(dir) = found else { return None };
            found = *self.current.get(&dir)?.get(name)?;
        }
        Some(found)
    }

    /// The directory and the name of a path, whose directory exists.
    fn place(&self, path: &str) -> Option<Place> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.find(parent)? {
            Entry::Dir(dir) => Some((dir, name.to_owned())),
            Entry::File(_) => None,
        }
    }

    /// Adds a name. `None` if its directory does not exist.
    pub(super) fn add(&mut self, at: u64, path: &str, entry: Entry) -> Option<()> {
        let place = self.place(path)?;
        self.change(Change { at, removed: None, added: Some((place, entry)) });
        Some(())
    }

    /// Removes a name. `None` if there is none.
    pub(super) fn remove(&mut self, at: u64, path: &str) -> Option<()> {
        self.find(path)?;
        let place = self.place(path)?;
        self.change(Change { at, removed: Some(place), added: None });
        Some(())
    }

    /// Renames a file or directory, in place of an existing one. `None` if there is none.
    pub(super) fn rename(&mut self, at: u64, from: &str, to: &str) -> Option<()> {
        let entry = self.find(from)?;
        let (from, to) = (self.place(from)?, self.place(to)?);
        self.change(Change { at, removed: Some(from), added: Some((to, entry)) });
        Some(())
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.pending.push(change);
    }

    /// Takes back the change that was recorded at this position, if it is the last one.
    pub(super) fn take_back(&mut self, at: u64) -> bool {
        let is_last = self.pending.pop_if(|change| change.at == at).is_some();
        if is_last {
            self.current = self.durable.clone();
            for change in &self.pending {
                apply(&mut self.current, change);
            }
        }
        is_last
    }

    /// Everything recorded before `upto` in this directory is durable. A name that moves between directories is so by a sync
    /// of either.
    pub(super) fn sync(&mut self, dir: DirId, upto: u64) {
        let durable = &mut self.durable;
        self.pending.retain(|change| {
            let touches = |place: Option<&Place>| place.is_some_and(|(at, _)| *at == dir);
            let is_inside =
                touches(change.removed.as_ref()) || touches(change.added.as_ref().map(|(place, _)| place));
            let is_synced = is_inside && change.at < upto;
            if is_synced {
                apply(durable, change);
            }
            !is_synced
        });
    }

    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// All paths that a process sees, with their files or directories.
    pub(super) fn current(&self) -> BTreeMap<String, Entry> {
        walk(&self.current)
    }

    /// The paths after a power loss: the durable ones and none, the first, some, or all of the changes since then.
    pub(super) fn survive(&self, random: &mut StdRng) -> BTreeMap<String, Entry> {
        let mut entries = self.durable.clone();
        let way = random.random_range(0..4);
        let first = random.random_range(0..=self.pending.len());
        for (nth, change) in self.pending.iter().enumerate() {
            let is_kept = match way {
                0 => false,
                1 => nth < first,
                2 => random.random_bool(0.5),
                _ => true,
            };
            if is_kept {
                apply(&mut entries, change);
            }
        }
        walk(&entries)
    }
}

fn apply(entries: &mut Entries, change: &Change) {
    if let Some((dir, name)) = &change.removed {
        entries.entry(*dir).or_default().remove(name);
    }
    if let Some(((dir, name), entry)) = &change.added {
        entries.entry(*dir).or_default().insert(name.clone(), *entry);
    }
}

fn walk(entries: &Entries) -> BTreeMap<String, Entry> {
    let mut paths = BTreeMap::new();
    let mut folders = vec![(String::new(), ROOT)];
    while let Some((folder, dir)) = folders.pop() {
        for (name, entry) in entries.get(&dir).into_iter().flatten() {
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if let Entry::Dir(child) = entry {
                folders.push((path.clone(), *child));
            }
            paths.insert(path, *entry);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;

    use super::*;

    fn survivors(names: &Names) -> HashSet<String> {
        let survive = |seed| names.survive(&mut StdRng::seed_from_u64(seed));
        (0..200).map(|seed| survive(seed).into_keys().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_name_is_durable_once_its_directory_is_synced() {
        let mut names = Names::default();
        names.add(0, "a", Entry::File(1)).unwrap();
        names.add(10, "b", Entry::File(2)).unwrap();
        names.sync(ROOT, 10);
        assert_eq!(survivors(&names), ["a", "a b"].map(str::to_owned).into());
        assert_eq!(names.pending_count(), 1);
    }

    #[test]
    fn a_rename_is_whole_or_not_at_all() {
        let mut names = Names::default();
        names.add_durable("old", Entry::File(1)).unwrap();
        names.add_durable("new", Entry::File(2)).unwrap();
        names.rename(0, "old", "new").unwrap();
        assert_eq!(survivors(&names), ["new old", "new"].map(str::to_owned).into());
        assert_eq!(names.find("new"), Some(Entry::File(1)));
    }

    #[test]
    fn removals_survive_in_any_order() {
        let mut names = Names::default();
        names.add_durable("a", Entry::File(1)).unwrap();
        names.add_durable("b", Entry::File(2)).unwrap();
        names.remove(0, "a").unwrap();
        names.remove(10, "b").unwrap();
        assert_eq!(survivors(&names), ["a b", "a", "b", ""].map(str::to_owned).into());
    }

    #[test]
    fn files_of_a_lost_directory_are_lost() {
        let mut names = Names::default();
        let dir = names.new_dir();
        names.add(0, "d", Entry::Dir(dir)).unwrap();
        names.add(10, "d/f", Entry::File(1)).unwrap();
        names.sync(dir, 20);
        assert_eq!(survivors(&names), ["", "d d/f"].map(str::to_owned).into());
    }

    #[test]
    fn a_change_that_failed_is_taken_back() {
        let mut names = Names::default();
        names.add_durable("a", Entry::File(1)).unwrap();
        names.remove(5, "a").unwrap();
        assert!(!names.take_back(4) && names.take_back(5));
        assert_eq!(names.find("a"), Some(Entry::File(1)));
    }
}
