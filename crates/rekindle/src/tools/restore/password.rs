//! Asks for a password.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Asks for a password at the terminal, which does not show it; without a terminal, reads a line of standard input. Fails if neither
/// can be read.
pub fn ask(prompt: &str) -> io::Result<String> {
    let Ok(mut terminal) = File::options().read(true).write(true).open("/dev/tty") else {
        return first_line(io::stdin().lock());
    };
    let before = tcgetattr(&terminal)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    hidden.local_modes.insert(LocalModes::ECHONL);
    tcsetattr(&terminal, OptionalActions::Flush, &hidden)?;
    let password = terminal.write_all(prompt.as_bytes()).and_then(|()| first_line(BufReader::new(&terminal)));
    tcsetattr(&terminal, OptionalActions::Flush, &before)?;
    password
}

fn first_line(mut input: impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match input.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}
