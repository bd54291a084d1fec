//! Who goes on when several want a core.

use std::process::Command;

/// How this program and what it starts are scheduled once [`schedule_as_batch`] has succeeded, in a word of `sched(7)`.
pub const BATCH: &str = "batch";

/// Has this program, and all that it starts from now on, scheduled as batch work: whoever has a core keeps it until it
/// waits for something or its turn is over, and is not stopped for each message that wakes another (`sched(7)`,
/// `SCHED_BATCH`).
///
/// Fails with what `chrt` (util-linux) said, or that it is not there.
pub fn schedule_as_batch() -> Result<(), String> {
    let own = std::process::id().to_string();
    let said = Command::new("chrt").args(["--all-tasks", "--batch", "--pid", "0", &own]).output();
    match said {
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => Err(String::from_utf8_lossy(&said.stderr).trim().to_owned()),
        Err(error) => Err(format!("chrt: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The 41st member of `/proc/PID/stat` (`proc_pid_stat(5)`, `policy`), of which the second may hold blanks.
    fn policy(stat: &str) -> Option<&str> {
        stat.rsplit_once(')')?.1.split_whitespace().nth(38)
    }

    #[test]
    fn this_program_and_what_it_starts_become_batch_work() {
        schedule_as_batch().expect("the machine of the tests has chrt");
        let own = fs::read_to_string("/proc/thread-self/stat").expect("a thread");
        let started = Command::new("cat").arg("/proc/self/stat").output().expect("cat").stdout;
        let started = String::from_utf8(started).expect("text");
        assert_eq!((policy(&own), policy(&started)), (Some("3"), Some("3")));
    }
}
