//! Runs a tool beside this process, which goes on when it has ended.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Runs the command to its end, and returns its exit code: 128 and the signal's number if a signal ended it. Fails if it cannot be started.
///
/// Meanwhile signals that end this process end the command, which tidies up. An interrupt from the terminal reaches both.
pub fn run(command: &mut Command) -> io::Result<u8> {
    let running = Arc::new(Mutex::new(None));
    let of_thread = Arc::clone(&running);
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mut child = {
        // A signal in between waits for the id.
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        thread::Builder::new().spawn(move || {
            for signal in &mut signals {
                pass_on(signal, *of_thread.lock().unwrap_or_else(PoisonError::into_inner));
            }
        })?;
        let child = command.spawn()?;
        *running = Some(Pid::from_child(&child));
        child
    };
    let code = exit_code(&mut child);
    *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    code
}

/// Errors are of no use here: the process ends, or has ended.
fn pass_on(signal: i32, child: Option<Pid>) {
    match child {
        None => drop(emulate_default_handler(signal)),
        Some(child) if signal == SIGTERM => drop(kill_process(child, Signal::TERM)),
        Some(_) => {}
    }
}

fn exit_code(child: &mut Child) -> io::Result<u8> {
    let status = child.wait()?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
