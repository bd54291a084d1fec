//! One sandbox as the server sees it: a process that is asked and answers, or is ended.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use query::ScriptFailure;
use reql::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::{self, Answer, Question};

/// How soon a query that is told to stop is heard.
const CANCEL_EVERY: Duration = Duration::from_millis(20);
/// How long a sandbox may take for what is no script.
const HOUSEKEEPING_MAX: Duration = Duration::from_secs(10);

/// How a sandbox is started.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
}

/// A running sandbox. Dropping it ends it.
pub(super) struct Sandbox {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Sandbox {
    /// Starts one, with nothing of this process's environment.
    pub(super) fn start(program: &Program) -> io::Result<Sandbox> {
        let mut child = Command::new(&program.path)
            .args(&program.args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Sandbox { child, to, from }),
            _ => Err(io::Error::other("a sandbox without pipes")),
        }
    }

    /// Whether it has not come to an end by itself.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its answer to `question`. After a failure it must not be asked again.
    pub(super) fn ask(
        &mut self,
        question: &Question,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<Answer, ScriptFailure> {
        let deadline = Instant::now().checked_add(timeout);
        frame::write(&mut self.to, question.to_object()).map_err(|_| ScriptFailure::Crashed)?;
        let mut length = [0; 4];
        self.fill(&mut length, deadline, cancel)?;
        let length = frame::length_of(length).map_err(|_| ScriptFailure::Crashed)?;
        let mut body = vec![0; length];
        self.fill(&mut body, deadline, cancel)?;
        let object = frame::body_of(&body).map_err(|_| ScriptFailure::Crashed)?;
        Answer::from_object(&object).ok_or(ScriptFailure::Crashed)
    }

    /// Has it do something that no script takes part in.
    pub(super) fn tell(&mut self, question: &Question) -> Result<(), ScriptFailure> {
        match self.ask(question, HOUSEKEEPING_MAX, &Cancel::new())? {
            Answer::Done => Ok(()),
            _ => Err(ScriptFailure::Crashed),
        }
    }

    fn fill(
        &mut self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
        cancel: &Cancel,
    ) -> Result<(), ScriptFailure> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.wait(deadline, cancel)?;
            match self.from.read(&mut buffer[filled..]) {
                Ok(0) => return Err(ScriptFailure::Crashed),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(ScriptFailure::Crashed),
            }
        }
        Ok(())
    }

    /// Waits until something can be read.
    fn wait(&self, deadline: Option<Instant>, cancel: &Cancel) -> Result<(), ScriptFailure> {
        loop {
            if cancel.is_set() {
                return Err(ScriptFailure::Cancelled);
            }
            let left = deadline.map_or(CANCEL_EVERY, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(ScriptFailure::TimedOut);
            }
            let slice = Timespec::try_from(left.min(CANCEL_EVERY)).map_err(|_| ScriptFailure::Crashed)?;
            let mut ready = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut ready, Some(&slice)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(_) => return Err(ScriptFailure::Crashed),
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // It may have ended by itself already; it is waited for in either case.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
