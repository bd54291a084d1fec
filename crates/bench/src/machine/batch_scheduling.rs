//! Batch scheduling: fewer preemptions when several programs compete for a core.

use std::process::Command;

/// The scheduling policy of this program and its children after [`schedule_as_batch`], as named in `sched(7)`.
pub const BATCH: &str = "batch";

/// Why batch scheduling could not be set.
#[derive(Debug, thiserror::Error)]
pub enum BatchSchedulingError {
    /// Usually because it is not installed.
    #[error("chrt (package util-linux) could not be run")]
    NoChrt(#[from] std::io::Error),
    /// The kernel or the container refused.
    #[error("chrt failed: {said}")]
    Refused {
        /// The output of chrt.
        said: String,
    },
}

/// Schedules this program and all processes that it starts from now on as batch work: a process keeps its core until it
/// waits or its time slice ends, and is not preempted by each message that wakes another (`sched(7)`, `SCHED_BATCH`).
///
/// Uses `chrt` (util-linux).
pub fn schedule_as_batch() -> Result<(), BatchSchedulingError> {
    let own = std::process::id().to_string();
    let said = Command::new("chrt").args(["--all-tasks", "--batch", "--pid", "0", &own]).output()?;
    match said.status.success() {
        true => Ok(()),
        false => Err(BatchSchedulingError::Refused {
            said: String::from_utf8_lossy(&said.stderr).trim().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TELLS: &str = "REKINDLE_TEST_TELLS_ITS_POLICY";

    /// The 41st field of `/proc/PID/stat` (`proc_pid_stat(5)`, `policy`). The second field may contain spaces.
    fn policy(stat: &str) -> Option<&str> {
        stat.rsplit_once(')')?.1.split_whitespace().nth(38)
    }

    /// In a separate process, because batch scheduling would also affect other tests.
    #[test]
    fn a_program_and_its_children_become_batch_work() {
        if std::env::var_os(TELLS).is_none() {
            let mut own = Command::new(std::env::current_exe().expect("this program"));
            let name = "machine::batch_scheduling::tests::a_program_and_its_children_become_batch_work";
            let ended = own.args(["--exact", name]).env(TELLS, "").output().expect("a second one");
            let said = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        schedule_as_batch().expect("the machine of the tests has chrt");
        let own = std::fs::read_to_string("/proc/thread-self/stat").expect("a thread");
        let started = Command::new("cat").arg("/proc/self/stat").output().expect("cat").stdout;
        let started = String::from_utf8(started).expect("text");
        assert_eq!((policy(&own), policy(&started)), (Some("3"), Some("3")));
    }
}
