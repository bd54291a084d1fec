//! Who goes on when several want a core.

use std::process::Command;

/// How this program and what it starts are scheduled once [`schedule_as_batch`] has succeeded, in a word of `sched(7)`.
pub const BATCH: &str = "batch";

/// Why nobody is scheduled as batch work.
#[derive(Debug, thiserror::Error)]
pub enum NotBatch {
    /// Usually: it is not there.
    #[error("chrt (package util-linux) could not be run")]
    NoChrt(#[from] std::io::Error),
    /// The kernel's or the container's choice.
    #[error("chrt was refused it: {said}")]
    Refused {
        /// Its own words.
        said: String,
    },
}

/// Has this program, and all that it starts from now on, scheduled as batch work: whoever has a core keeps it until it
/// waits for something or its turn is over, and is not stopped for each message that wakes another (`sched(7)`,
/// `SCHED_BATCH`).
///
/// Asks `chrt` (util-linux) for it.
pub fn schedule_as_batch() -> Result<(), NotBatch> {
    let own = std::process::id().to_string();
    let said = Command::new("chrt").args(["--all-tasks", "--batch", "--pid", "0", &own]).output()?;
    match said.status.success() {
        true => Ok(()),
        false => Err(NotBatch::Refused { said: String::from_utf8_lossy(&said.stderr).trim().to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TELLS: &str = "REKINDLE_TEST_TELLS_ITS_POLICY";

    /// The 41st member of `/proc/PID/stat` (`proc_pid_stat(5)`, `policy`), of which the second may hold blanks.
    fn policy(stat: &str) -> Option<&str> {
        stat.rsplit_once(')')?.1.split_whitespace().nth(38)
    }

    /// In a process of its own: it would stay batch work, beside other tests.
    #[test]
    fn a_program_and_what_it_starts_become_batch_work() {
        if std::env::var_os(TELLS).is_none() {
            let mut own = Command::new(std::env::current_exe().expect("this program"));
            let name = "machine::batch::tests::a_program_and_what_it_starts_become_batch_work";
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
