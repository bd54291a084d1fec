//! The other side of the pipes: a process with nothing but scripts in it.
//!
//! It can reach nothing: QuickJS here has no files, no network and no clock to wait on, and the
//! process may open no files, write none and start no processes. Memory and processor time have
//! limits that the system holds, in case QuickJS does not hold its own.

use std::io::{self, BufReader, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::engine::Engine;
use super::frame::{self, Answer, Question};

/// Address space of the process. Its scripts have a limit of their own, well below.
const ADDRESS_SPACE_BYTES_MAX: u64 = 2 << 30;
/// Files it may have open: the pipes, and none that it could open now.
const FILES_MAX: u64 = 3;

/// What the hidden command `js-sandbox` does: answers questions until there are no more.
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

/// Gives up what scripts do not need. It cannot be taken back.
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
        let question = Question::from_object(&object)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no question"))?;
        let answer = match question {
            Question::Reset => {
                engine = self::engine()?;
                Answer::Done
            }
            Question::Eval { source, limits } => {
                end_after(limits.cpu_seconds)?;
                engine.eval(&source, items(limits.array_items))
            }
            Question::Call { function, values, limits } => {
                end_after(limits.cpu_seconds)?;
                engine.call(function, &values, items(limits.array_items))
            }
            Question::Release { function } => {
                engine.release(function);
                Answer::Done
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

/// Has the system end this process once it has used so many more seconds of processor time. The
/// server ends it earlier, if it still lives.
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
    fn questions_are_answered_in_their_order() {
        let limits = frame::Limits { cpu_seconds: 1 << 20, array_items: 10 };
        let mut questions = Vec::new();
        for question in [
            Question::Eval { source: "x = 1; (function(y) { return x + y; })".into(), limits },
            Question::Call { function: 0, values: vec![2.into()], limits },
            Question::Reset,
            Question::Eval { source: "typeof x".into(), limits },
        ] {
            frame::write(&mut questions, question.to_object()).expect("memory");
        }
        let mut answers = Vec::new();
        serve(&mut questions.as_slice(), &mut answers).expect("the end of the questions");
        let mut answers = answers.as_slice();
        for expected in
            [Answer::Function(0), Answer::Datum(3.into()), Answer::Done, Answer::Datum("undefined".into())]
        {
            let object = frame::read(&mut answers).expect("a frame").expect("not the end");
            assert_eq!(Answer::from_object(&object), Some(expected));
        }
    }
}
