//! Limits processes of this machine to a fixed share of processor time, with control groups of version 1 or 2, so that
//! many nodes on one machine are equally fast.
//!
//! Source: the kernel's Documentation/scheduler/sched-bwc.rst and admin-guide/cgroup-v2.rst.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cleanup::CleanupGuard;

/// The kernel's minimum quota is a millisecond per period.
const QUOTA_US_MIN: u64 = 1_000;
/// A node that has used its share waits at most this long for the next period, if its share is large enough. After each
/// wait its processor caches are cold, which matters less with longer periods.
const PERIOD_US_MIN: u64 = 40_000;
/// The kernel's maximum period.
const PERIOD_US_MAX: u64 = 1_000_000;
/// The smallest share of a core that the kernel can enforce.
pub const SHARE_MIN: f64 = QUOTA_US_MIN as f64 / PERIOD_US_MAX as f64;
/// The controller of processor time.
const CPU: &str = "cpu";
/// The prefix of a group's name; the process id follows.
const NAME: &str = "rekindle-bench-";
/// A group stays busy for a moment after its last process has ended.
const REMOVAL_ATTEMPTS: u32 = 50;
const REMOVAL_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Why no control groups can be used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel or the container provides none.
    #[error("no control group hierarchy with a {controller} controller is mounted")]
    NotMounted {
        /// `cpu` or `memory`.
        controller: &'static str,
    },
    /// Usually because the user is not root.
    #[error("no control group can be made in {path}")]
    Refused {
        /// The last folder that was tried.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// A share of one core in the form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Processor time per period.
    pub quota_us: u64,
    /// Length of a period.
    pub period_us: u64,
}

impl Quota {
    /// `share` of one core (may exceed 1), with the shortest allowed period. A share below a thousandth of a core is
    /// raised to that.
    pub fn of_core(share: f64) -> Quota {
        let period = (QUOTA_US_MIN as f64 / share.max(SHARE_MIN)).ceil() as u64;
        let period_us = period.clamp(PERIOD_US_MIN, PERIOD_US_MAX);
        let quota_us = ((share * period_us as f64).round() as u64).max(QUOTA_US_MIN);
        Quota { quota_us, period_us }
    }
}

/// The version of the kernel interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `cpu.cfs_quota_us`.
    V1,
    /// `cpu.max`.
    V2,
}

impl Version {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Version::V1 => "cgroup-v1",
            Version::V2 => "cgroup-v2",
        }
    }
}

/// A control group of this process with one child group per node; all are removed when this is dropped or a signal ends
/// the program.
#[derive(Debug)]
pub struct CpuGroups {
    version: Version,
    /// Dropped before their parent.
    members: Vec<CleanupGuard<PathBuf>>,
    folder: CleanupGuard<PathBuf>,
}

impl CpuGroups {
    /// Creates a group in the first place where this process may.
    pub fn open() -> Result<CpuGroups, CgroupError> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let name = format!("{NAME}{}", std::process::id());
        let mut last = CgroupError::NotMounted { controller: CPU };
        for (version, parent) in places(&mounts, &own, CPU) {
            match CpuGroups::make(version, &parent, &name) {
                Ok(groups) => return Ok(groups),
                Err(source) => last = CgroupError::Refused { path: parent, source },
            }
        }
        Err(last)
    }

    fn make(version: Version, parent: &Path, name: &str) -> std::io::Result<CpuGroups> {
        remove_abandoned(parent, NAME);
        if version == Version::V2 {
            enable(parent, CPU)?;
        }
        let groups = CpuGroups { version, members: Vec::new(), folder: make(parent.join(name))? };
        if version == Version::V2 {
            enable(&groups.folder, CPU)?;
        }
        Ok(groups)
    }

    /// The version in use.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Creates the group of one node, without a limit; returns the file that takes the process ids of its members.
    pub fn add(&mut self, name: &str) -> std::io::Result<PathBuf> {
        let folder = make(self.folder.join(name))?;
        let procs = folder.join("cgroup.procs");
        self.members.push(folder);
        Ok(procs)
    }

    /// Limits every node's group to `quota`, or lifts the limit.
    pub fn limit(&self, quota: Option<Quota>) -> std::io::Result<()> {
        self.members.iter().try_for_each(|folder| match (self.version, quota) {
            (Version::V1, Some(Quota { quota_us, period_us })) => {
                fs::write(folder.join("cpu.cfs_period_us"), period_us.to_string())?;
                fs::write(folder.join("cpu.cfs_quota_us"), quota_us.to_string())
            }
            (Version::V1, None) => fs::write(folder.join("cpu.cfs_quota_us"), "-1"),
            (Version::V2, Some(Quota { quota_us, period_us })) => {
                fs::write(folder.join("cpu.max"), format!("{quota_us} {period_us}"))
            }
            (Version::V2, None) => fs::write(folder.join("cpu.max"), "max"),
        })
    }

    /// Removes the groups of all nodes, which must have ended.
    pub fn clear(&mut self) {
        self.members.clear();
    }
}

pub(super) fn make(folder: PathBuf) -> std::io::Result<CleanupGuard<PathBuf>> {
    CleanupGuard::make(
        || fs::create_dir(&folder).map(|()| folder.clone()),
        |folder| {
            remove(folder);
            Ok(())
        },
    )
}

/// Removes a group. One that cannot be removed is left behind; it is empty and harmless.
fn remove(folder: &Path) {
    for _ in 0..REMOVAL_ATTEMPTS {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(REMOVAL_RETRY_INTERVAL);
            }
            _ => return,
        }
    }
}

/// Removes the groups in `parent` of killed benchmarks: those named `prefix` and a process id. Groups with processes stay.
pub(super) fn remove_abandoned(parent: &Path, prefix: &str) {
    let is_abandoned = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    };
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    for group in entries(parent).filter(is_abandoned).map(|entry| entry.path()) {
        // The system refuses to remove a group in use, and files.
        entries(&group).for_each(|entry| drop(fs::remove_dir(entry.path())));
        let _ = fs::remove_dir(&group);
    }
}

/// Enables limits of `controller` for the children of `parent`.
pub(super) fn enable(parent: &Path, controller: &str) -> std::io::Result<()> {
    let control = parent.join("cgroup.subtree_control");
    let is_enabled = |text: &str| text.split_whitespace().any(|name| name == controller);
    match fs::read_to_string(&control) {
        Ok(text) if is_enabled(&text) => Ok(()),
        _ => fs::write(control, format!("+{controller}")),
    }
}

/// The places where a group of `controller` may be created, best first: with version 1 under this process's group; with version 2 in
/// this process's group and in each of its parents, because a group that contains processes cannot have limited
/// children.
pub(super) fn places(mounts: &str, own: &str, controller: &str) -> Vec<(Version, PathBuf)> {
    let is_it = |controllers: &str| controllers.split(',').any(|name| name == controller);
    let mut places = Vec::new();
    for mount in mounts.lines() {
        let fields: Vec<&str> = mount.split(' ').collect();
        let [_, point, kind, options, ..] = fields[..] else { continue };
        let point = Path::new(point);
        match kind {
            "cgroup" if is_it(options) => {
                let own = own_path(own, is_it);
                places.push((Version::V1, under(point, own)));
                places.push((Version::V1, point.to_owned()));
            }
            "cgroup2" => {
                let own = under(point, own_path(own, str::is_empty));
                let around = own.ancestors().take_while(|path| path.starts_with(point));
                places.extend(around.map(|path| (Version::V2, path.to_owned())));
            }
            _ => {}
        }
    }
    places.sort_by_key(|(version, _)| *version == Version::V2);
    places.dedup();
    places
}

fn own_path(own: &str, is_wanted: impl Fn(&str) -> bool) -> &str {
    let path_of = |line: &'_ str| -> Option<(String, usize)> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        is_wanted(controllers).then(|| (path.to_owned(), line.len() - path.len()))
    };
    own.lines().find_map(|line| path_of(line).map(|(_, start)| &line[start..])).unwrap_or("/")
}

fn under(point: &Path, own: &str) -> PathBuf {
    point.join(own.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_becomes_a_short_period() {
        assert_eq!(Quota::of_core(0.05), Quota { quota_us: 2_000, period_us: 40_000 });
        assert_eq!(Quota::of_core(0.02), Quota { quota_us: 1_000, period_us: 50_000 });
        assert_eq!(Quota::of_core(1.5), Quota { quota_us: 60_000, period_us: 40_000 });
        assert_eq!(Quota::of_core(0.0), Quota { quota_us: 1_000, period_us: 1_000_000 });
    }

    #[test]
    fn places_are_found_for_both_versions() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let own = "4:cpuacct,cpu:/user\n0::/a/b\n";
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(
            places(mounts, own, CPU),
            [
                (Version::V1, path("/sys/fs/cgroup/cpu/user")),
                (Version::V1, path("/sys/fs/cgroup/cpu")),
                (Version::V2, path("/sys/fs/cgroup/unified/a/b")),
                (Version::V2, path("/sys/fs/cgroup/unified/a")),
                (Version::V2, path("/sys/fs/cgroup/unified")),
            ]
        );
        assert_eq!(places("", own, CPU), []);
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let quota = Quota { quota_us: 1_000, period_us: 20_000 };
        for (version, file, limited, lifted) in
            [(Version::V1, "cpu.cfs_quota_us", "1000", "-1"), (Version::V2, "cpu.max", "1000 20000", "max")]
        {
            let place = tempfile::tempdir().expect("a folder");
            let mut groups = CpuGroups::make(version, place.path(), "ours").expect("made");
            groups.add("node1").expect("added");
            let read = || fs::read_to_string(place.path().join("ours/node1").join(file)).expect("written");
            groups.limit(Some(quota)).expect("limited");
            assert_eq!(read(), limited);
            groups.limit(None).expect("lifted");
            assert_eq!(read(), lifted);
        }
    }

    #[test]
    fn groups_of_a_killed_benchmark_are_removed_by_the_next() {
        let place = tempfile::tempdir().expect("a folder");
        let groups = ["rekindle-bench-4294967295", "rekindle-bench-1", "rekindle-bench-x", "another"];
        let groups = groups.map(|name| place.path().join(name));
        groups.iter().for_each(|group| fs::create_dir_all(group.join("node0")).expect("made"));
        CpuGroups::make(Version::V1, place.path(), "ours").expect("made");
        assert_eq!(groups.map(|group| group.join("node0").exists()), [false, true, true, true]);
    }

    /// Skipped where this machine has no control groups.
    #[test]
    fn a_busy_process_gets_its_share_and_no_more() {
        let Ok(mut groups) = CpuGroups::open() else { return };
        let procs = groups.add("busy").expect("a group");
        groups.limit(Some(Quota::of_core(0.1))).expect("limited");
        let script = format!("echo $$ > {} && while :; do :; done", procs.display());
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().expect("a shell");
        let used = || super::super::process::cpu(child.id()).map_or(0.0, |cpu| cpu.user_seconds);
        let started = std::time::Instant::now();
        // The process has joined its group before it runs the program.
        while used() < 0.1 && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (before, since) = (used(), std::time::Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let share = (used() - before) / since.elapsed().as_secs_f64();
        child.kill().and_then(|()| child.wait()).expect("stopped");
        assert!(share < 0.2, "{share} of a core");
    }
}
