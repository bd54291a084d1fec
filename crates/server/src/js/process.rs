//! A sandbox from the server's side: a process that answers requests or is killed.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use query::ScriptFailure;
use reql::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::{self, SandboxRequest, SandboxResponse};

/// How often a waiting request checks whether its query is cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of requests that run no script.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// The command that starts a sandbox.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
}

/// A running sandbox. Dropping it kills it.
pub(super) struct Sandbox {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Sandbox {
    /// Starts one with an empty environment.
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

    /// Whether the process is still running.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends `request` and waits for the response. After a failure the sandbox must not be used again.
    pub(super) fn request(
        &mut self,
        request: &SandboxRequest,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<SandboxResponse, ScriptFailure> {
        let deadline = Instant::now().checked_add(timeout);
        frame::write(&mut self.to, request.to_object()).map_err(|_| ScriptFailure::Crashed)?;
        let mut length = [0; 4];
        self.fill(&mut length, deadline, cancel)?;
        let length = frame::length_of(length).map_err(|_| ScriptFailure::Crashed)?;
        let mut body = vec![0; length];
        self.fill(&mut body, deadline, cancel)?;
        let object = frame::body_of(&body).map_err(|_| ScriptFailure::Crashed)?;
        SandboxResponse::from_object(&object).ok_or(ScriptFailure::Crashed)
    }

    /// Sends a request that runs no script.
    pub(super) fn control(&mut self, request: &SandboxRequest) -> Result<(), ScriptFailure> {
        match self.request(request, CONTROL_TIMEOUT, &Cancel::new())? {
            SandboxResponse::Done => Ok(()),
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

    /// Waits until the pipe is readable.
    fn wait(&self, deadline: Option<Instant>, cancel: &Cancel) -> Result<(), ScriptFailure> {
        loop {
            if cancel.is_set() {
                return Err(ScriptFailure::Cancelled);
            }
            let left =
                deadline.map_or(CANCEL_CHECK_INTERVAL, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(ScriptFailure::TimedOut);
            }
            let slice =
                Timespec::try_from(left.min(CANCEL_CHECK_INTERVAL)).map_err(|_| ScriptFailure::Crashed)?;
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
        // The process may have ended already; it is reaped in either case.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
