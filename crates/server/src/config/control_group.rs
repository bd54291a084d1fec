//! The memory limit of the control groups that this process is in: that of its container, or of its service.
//!
//! Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The files of one version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Names {
    limit: &'static str,
    used: &'static str,
    /// The fields of `memory.stat` with files in the page cache, which the kernel takes back as needed.
    files: [&'static str; 2],
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};
const V2: Names =
    Names { limit: "memory.max", used: "memory.current", files: ["inactive_file ", "active_file "] };

/// The memory of a control group in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupMemory {
    pub limit: u64,
    /// What may still be allocated: the limit without what is in use, where files in the page cache are not in use.
    pub available: u64,
}

/// The lowest limit and the least available memory of all groups that this process is in; `None` without a limit.
pub(super) fn own() -> Option<GroupMemory> {
    let mounts = read_to_string("/proc/self/mounts").ok()?;
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    lowest(hierarchies(&mounts, &groups))
}

/// The mount point of each hierarchy that limits memory, the path of the process in it, and its version.
fn hierarchies(mounts: &str, groups: &str) -> Vec<(PathBuf, String, Names)> {
    let group_of = |controller: &str| {
        let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines.find(|(controllers, _)| controllers.split(',').any(|one| one == controller))
    };
    let hierarchy = |line: &str| {
        let mut fields = line.split(' ');
        let (point, kind, options) = (fields.nth(1)?, fields.next()?, fields.next()?);
        let names = match kind {
            "cgroup2" => V2,
            "cgroup" if options.split(',').any(|option| option == "memory") => V1,
            _ => return None,
        };
        let (_, path) = group_of(if names == V2 { "" } else { "memory" })?;
        Some((PathBuf::from(point), path.to_owned(), names))
    };
    mounts.lines().filter_map(hierarchy).collect()
}

fn lowest(hierarchies: Vec<(PathBuf, String, Names)>) -> Option<GroupMemory> {
    let mut lowest: Option<GroupMemory> = None;
    for (point, path, names) in hierarchies {
        let mut folder = point.join(path.trim_start_matches('/'));
        if !folder.exists() {
            // In a container, the path may be that of the host, and the mount point that of the container.
            folder.clone_from(&point);
        }
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(&point)) {
            let Some(found) = group_memory(folder, names) else { continue };
            lowest = Some(lowest.map_or(found, |lowest| GroupMemory {
                limit: lowest.limit.min(found.limit),
                available: lowest.available.min(found.available),
            }));
        }
    }
    lowest
}

/// The memory of the group in `folder`; `None` without a limit, of which the file says `max`, or nearly the largest number.
fn group_memory(folder: &Path, names: Names) -> Option<GroupMemory> {
    let number = |name: &str| read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(names.limit).filter(|limit| *limit < u64::MAX / 4)?;
    let stat = read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
    let files: u64 = names.files.iter().filter_map(|name| field(name)).sum();
    let used = number(names.used).unwrap_or_default().saturating_sub(files);
    Some(GroupMemory { limit, available: limit.saturating_sub(used) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn both_versions_are_found_with_the_path_of_the_process() {
        let mounts = "proc /proc proc rw 0 0\n\
            cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let groups = "5:cpu:/c\n4:memory:/a/b\n0::/u\n";
        let expected = vec![
            (PathBuf::from("/sys/fs/cgroup/memory"), "/a/b".to_owned(), V1),
            (PathBuf::from("/sys/fs/cgroup/unified"), "/u".to_owned(), V2),
        ];
        assert_eq!(hierarchies(mounts, groups), expected);
        assert_eq!(hierarchies("", ""), []);
    }

    #[test]
    fn the_lowest_limit_of_all_parents_holds_and_cached_files_are_available() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("a/b");
        fs::create_dir_all(&folder).expect("made");
        let write = |path: &str, text: &str| fs::write(place.path().join(path), text).expect("written");
        write("memory.max", "max\n");
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 50\ninactive_file 300\nactive_file 50\n");
        write("a/b/memory.max", "2000\n");
        write("a/b/memory.current", "100\n");
        let of = |path: &str| lowest(vec![(place.path().to_owned(), path.to_owned(), V2)]);
        assert_eq!(of("/a/b"), Some(GroupMemory { limit: 1000, available: 650 }));
        assert_eq!(of("/"), None);
        assert_eq!(of("/docker/1234"), None, "the path of the host");
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(lowest(vec![(place.path().to_owned(), "/".to_owned(), V1)]), None);
    }
}
