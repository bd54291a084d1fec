//! Processes that end with this program, however it ends.
//!
//! The kernel's death signal of a parent does not reach the children of a wrapper around a server, depends on the
//! thread that started the process, and needs `unsafe`. So each process starts as a shell, which leaves a companion in
//! the process group and then becomes the program. The companion reads from a pipe of which only this program has the
//! other end, and nothing is ever written to it: when the pipe closes, the companion kills its group. As long as it
//! lives, no other process can get the number of the group.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::cleanup::CleanupGuard;
use super::process;

/// The companion is not a child of the program, which expects only its own children, and not in its control group. It
/// is in the process group of the shell because that does no job control, whatever the environment says.
const SHELL_PROLOGUE: &str = r#"
set +m
exec 3<&0 </dev/null
( (read -r line <&3; kill -KILL 0) >/dev/null 2>&1 & )
exec 3<&-
procs=$1
shift
test -z "$procs" || echo $$ >"$procs" || exit
exec "$@"
"#;

/// The other processes of a killed group take a moment to end.
const END_POLLS_MAX: u32 = 100;
const END_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process in its own process group, which is killed when this is dropped or this program ends.
#[derive(Debug)]
pub struct GuardedProcess {
    child: CleanupGuard<Arc<Mutex<Child>>>,
    id: u32,
}

impl GuardedProcess {
    /// Starts `program`, from its first instruction in the control group with the file of process ids `procs`, if
    /// given. `configure` adds arguments and redirects the output. A missing program ends with status 127 and an error
    /// in its output.
    pub fn start(
        program: &Path,
        procs: Option<&Path>,
        configure: impl FnOnce(&mut Command),
    ) -> io::Result<GuardedProcess> {
        let mut command = Command::new("sh");
        command.args(["-c", SHELL_PROLOGUE, "sh"]).arg(procs.unwrap_or(Path::new(""))).arg(program);
        configure(&mut command);
        command.stdin(Stdio::piped()).process_group(0);
        let spawn = || command.spawn().map(|child| Arc::new(Mutex::new(child)));
        let child = CleanupGuard::make_many(spawn, kill, end)?;
        let id = lock(&child).id();
        Ok(GuardedProcess { child, id })
    }

    /// The id of the process and its group.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its exit status, if it has ended.
    pub fn status(&self) -> Option<ExitStatus> {
        lock(&self.child).try_wait().ok().flatten()
    }

    /// Its output, if that is a pipe that was not taken yet.
    pub fn take_output(&self) -> Option<ChildStdout> {
        lock(&self.child).stdout.take()
    }
}

fn kill(child: &Arc<Mutex<Child>>) {
    // Fails if the group has already ended.
    let _ = kill_process_group(Pid::from_child(&lock(child)), Signal::KILL);
}

fn end(child: &Arc<Mutex<Child>>) -> io::Result<()> {
    kill(child);
    let mut child = lock(child);
    child.wait()?;
    for _ in 0..END_POLLS_MAX {
        if !process::any_in_group(child.id()) {
            break;
        }
        std::thread::sleep(END_POLL_INTERVAL);
    }
    Ok(())
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::time::Instant;

    use super::*;

    fn shell(script: &str) -> (GuardedProcess, impl Iterator<Item = String>) {
        let process = GuardedProcess::start(Path::new("sh"), None, |command| {
            command.args(["-c", script]).stdout(Stdio::piped());
        });
        let process = process.expect("a shell");
        let output = process.take_output().expect("its output");
        (process, BufReader::new(output).lines().map_while(Result::ok))
    }

    #[test]
    fn children_of_a_process_end_with_it() {
        let (process, mut output) = shell("echo $$; sleep 1000 & sleep 1000");
        assert_eq!(output.next(), Some(process.id().to_string()));
        assert_eq!(process.status(), None);
        drop(process);
        // The pipe stays open while any process has it.
        assert_eq!(output.next(), None);
    }

    #[test]
    fn an_ended_process_reports_its_status() {
        let (process, output) = shell("exit 3");
        assert_eq!(output.count(), 0);
        let started = Instant::now();
        while process.status().is_none() && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(END_POLL_INTERVAL);
        }
        assert_eq!(process.status().and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn a_control_group_is_joined_before_anything_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let procs = folder.path().join("cgroup.procs");
        let process = GuardedProcess::start(Path::new("cat"), Some(&procs), |command| {
            command.arg(&procs).stdout(Stdio::piped());
        });
        let process = process.expect("a process");
        let output = process.take_output().expect("its output");
        let said: Vec<String> = BufReader::new(output).lines().map_while(Result::ok).collect();
        assert_eq!(said, [process.id().to_string()]);
    }
}
