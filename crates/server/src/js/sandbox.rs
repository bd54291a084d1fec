//! The other side of the pipes: a process that only runs scripts.
//!
//! Scripts cannot reach anything outside: this QuickJS has no files, no network and no timers, and the process may
//! neither open nor write files nor start processes. The system enforces limits of memory and processor time, in case
//! QuickJS fails to enforce its own.

use std::io::{self, BufReader, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::engine::Engine;
use super::frame::{self, SandboxRequest, SandboxResponse};

/// Address space of the process. The memory limit of scripts is well below.
const ADDRESS_SPACE_BYTES_MAX: u64 = 2 << 30;
/// The number of open files: the pipes, and no further ones.
const FILES_MAX: u64 = 3;

/// Runs the hidden command `js-sandbox`: answers requests until the pipe is closed.
#[must_use]
pub fn run_sandbox() -> ExitCode {
    if let Err(error) = confine() {
        eprintln!("error: the sandbox cannot be confined: {error}");
        return ExitCode::FAILURE;
    }
    match serve(&mut BufReader::new(io::stdin().lock()), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Gives up the rights that scripts do not need; irreversible.
fn confine() -> io::Result<()> {
    for (resource, limit) in [
        (Resource::As, ADDRESS_SPACE_BYTES_MAX),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
        (Resource::Nofile, FILES_MAX),
    ] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

fn serve(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut engine = engine()?;
    while let Some(object) = frame::read(from)? {
        let request = SandboxRequest::from_object(&object)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a request"))?;
        let answer = match request {
            SandboxRequest::Reset => {
                engine = self::engine()?;
                SandboxResponse::Done
            }
            SandboxRequest::Eval { source, limits } => {
                end_after(limits.cpu_seconds)?;
                engine.eval(&source, items(limits.array_items))
            }
            SandboxRequest::Call { function, values, limits } => {
                end_after(limits.cpu_seconds)?;
                engine.call(function, &values, items(limits.array_items))
            }
            SandboxRequest::Release { function } => {
                engine.release(function);
                SandboxResponse::Done
            }
        };
        frame::write(to, answer.to_object())?;
    }
    Ok(())
}

fn engine() -> io::Result<Engine> {
    Engine::new().map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error.to_string()))
}

fn items(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Makes the system kill this process after that many more seconds of processor time. The server normally kills it
/// earlier.
fn end_after(seconds: u64) -> io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec;
    let current = u64::try_from(used).unwrap_or(0).saturating_add(seconds).saturating_add(1);
    let maximum = getrlimit(Resource::Cpu).maximum;
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(current), maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_in_order() {
        let limits = frame::Limits { cpu_seconds: 1 << 20, array_items: 10 };
        let mut questions = Vec::new();
        for request in [
            SandboxRequest::Eval { source: "x = 1; (function(y) { return x + y; })".into(), limits },
            SandboxRequest::Call { function: 0, values: vec![2.into()], limits },
            SandboxRequest::Reset,
            SandboxRequest::Eval { source: "typeof x".into(), limits },
        ] {
            frame::write(&mut questions, request.to_object()).expect("memory");
        }
        let mut answers = Vec::new();
        serve(&mut questions.as_slice(), &mut answers).expect("the end of the questions");
        let mut answers = answers.as_slice();
        for expected in [
            SandboxResponse::Function(0),
            SandboxResponse::Datum(3.into()),
            SandboxResponse::Done,
            SandboxResponse::Datum("undefined".into()),
        ] {
            let object = frame::read(&mut answers).expect("a frame").expect("not the end");
            assert_eq!(SandboxResponse::from_object(&object), Some(expected));
        }
    }
}
