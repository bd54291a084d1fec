//! Counts and limits the memory of processes on this machine, their page cache included, with a control group of version
//! 1 or 2.
//!
//! Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.

use std::fs;
use std::path::{Path, PathBuf};

use super::cgroup::{CgroupError, Version, enable, make, places, remove_abandoned};
use super::cleanup::CleanupGuard;

const MEMORY: &str = "memory";
/// The prefixes of the names of groups with and without a limit; the process id follows.
const LIMITED_NAME: &str = "rekindle-bench-memory-";
const UNLIMITED_NAME: &str = "rekindle-bench-peak-";

/// A control group that counts memory, and may limit it; removed when this is dropped or a signal ends the program. Its
/// processes must have ended by then.
#[derive(Debug)]
pub struct MemoryGroup {
    version: Version,
    folder: CleanupGuard<PathBuf>,
}

impl MemoryGroup {
    /// Creates a group in the first place where this process may. With `bytes_max`, its processes have so much memory
    /// and no swap.
    pub fn open(bytes_max: Option<u64>) -> Result<MemoryGroup, CgroupError> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let prefix = bytes_max.map_or(UNLIMITED_NAME, |_| LIMITED_NAME);
        let mut last = CgroupError::NotMounted { controller: MEMORY };
        for (version, parent) in places(&mounts, &own, MEMORY) {
            match MemoryGroup::make(version, &parent, prefix, bytes_max) {
                Ok(group) => return Ok(group),
                Err(source) => last = CgroupError::Refused { path: parent, source },
            }
        }
        Err(last)
    }

    fn make(
        version: Version,
        parent: &Path,
        prefix: &str,
        bytes_max: Option<u64>,
    ) -> std::io::Result<MemoryGroup> {
        remove_abandoned(parent, prefix);
        if version == Version::V2 {
            enable(parent, MEMORY)?;
        }
        let folder = make(parent.join(format!("{prefix}{}", std::process::id())))?;
        let group = MemoryGroup { version, folder };
        bytes_max.map_or(Ok(()), |bytes| group.limit(bytes))?;
        Ok(group)
    }

    fn limit(&self, bytes: u64) -> std::io::Result<()> {
        let (limit, swap) = match self.version {
            Version::V1 => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", bytes)),
            Version::V2 => ("memory.max", ("memory.swap.max", 0)),
        };
        fs::write(self.folder.join(limit), bytes.to_string())?;
        // Without swap, or without its accounting, there is nothing to forbid.
        drop(fs::write(self.folder.join(swap.0), swap.1.to_string()));
        Ok(())
    }

    /// The file that takes the process ids of its members.
    pub fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The most memory that its members have used, page cache included; `None` if the kernel does not say.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        for (version, file, peak) in [
            (Version::V1, "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            (Version::V2, "memory.max", "memory.peak"),
        ] {
            let place = tempfile::tempdir().expect("a folder");
            let group = MemoryGroup::make(version, place.path(), "ours-", Some(1 << 20)).expect("made");
            let folder = place.path().join(format!("ours-{}", std::process::id()));
            assert_eq!(fs::read_to_string(folder.join(file)).expect("written"), "1048576");
            assert_eq!((group.procs(), group.peak_bytes()), (folder.join("cgroup.procs"), None));
            fs::write(folder.join(peak), "4096\n").expect("written");
            assert_eq!(group.peak_bytes(), Some(4096));
            let counting = MemoryGroup::make(version, place.path(), "peak-", None).expect("made");
            assert_eq!((counting.folder.join(file).exists(), counting.peak_bytes()), (false, None));
        }
    }
}
