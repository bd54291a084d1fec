//! Writes lines to the log file on a separate thread, so that a hanging disk does not block the threads that log.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The most lines that wait for the disk; further ones are dropped.
const WAITING_MAX: usize = 1024;
/// How long a thread that logs waits until the message is in the file. So the last messages before the process ends
/// are not lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes lines to a file, in order.
pub(super) struct Writer {
    lines: SyncSender<String>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    state: Mutex<WriterState>,
    changed: Condvar,
}

#[derive(Default)]
struct WriterState {
    sent: u64,
    written: u64,
    /// A write has timed out and the line is still not written: further lines do not wait.
    is_late: bool,
    /// The error of the last write.
    trouble: Option<String>,
}

impl Writer {
    /// Appends to `file`. Fails when the system provides no thread.
    pub(super) fn start(file: File) -> io::Result<Writer> {
        let (lines, to_write) = sync_channel(WAITING_MAX);
        let progress = Arc::<Progress>::default();
        let noted = progress.clone();
        thread::Builder::new()
            .name("log-file".to_owned())
            .spawn(move || write_all(file, &to_write, &noted))?;
        Ok(Writer { lines, progress })
    }

    /// Queues a line and waits until it is in the file, up to a timeout. Returns the problem, if there is one.
    pub(super) fn write(&self, line: String) -> Option<String> {
        let deadline = Instant::now() + WRITE_TIMEOUT;
        let mut state = self.progress.state.lock();
        if self.lines.try_send(line).is_err() {
            return Some(not_responding());
        }
        state.sent += 1;
        let own = state.sent;
        while state.written < own {
            if state.is_late || self.progress.changed.wait_until(&mut state, deadline).timed_out() {
                state.is_late = true;
                return Some(not_responding());
            }
        }
        state.trouble.clone()
    }
}

fn write_all(mut file: File, lines: &Receiver<String>, progress: &Progress) {
    while let Ok(line) = lines.recv() {
        let written = file.write_all(line.as_bytes());
        let mut state = progress.state.lock();
        state.written += 1;
        state.is_late &= state.written < state.sent;
        state.trouble = written.err().map(|error| error.to_string());
        progress.changed.notify_all();
    }
}

fn not_responding() -> String {
    "the disk does not answer".to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_hanging_disk_is_waited_for_once_and_gets_the_queued_lines_when_it_responds() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let writer = Writer::start(File::from(OwnedFd::from(pipe))).unwrap();
        assert_eq!(writer.write("first\n".to_owned()), None);
        // More than a pipe holds without a reader.
        assert_eq!(writer.write("x".repeat(1 << 20)), Some(not_responding()));
        let began = Instant::now();
        let told: Vec<_> = (0..100).map(|n| writer.write(format!("{n}\n"))).collect();
        assert!(told.iter().all(Option::is_some) && began.elapsed() < WRITE_TIMEOUT, "nobody waits again");
        let reading = thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).unwrap();
            all
        });
        while writer.progress.state.lock().is_late {
            thread::yield_now();
        }
        assert_eq!(writer.write("last\n".to_owned()), None);
        drop(writer);
        let all = reading.join().unwrap();
        assert!(all.starts_with("first\nxx") && all.ends_with("98\n99\nlast\n"));
    }
}
