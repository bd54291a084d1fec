//! Programs of the workspace, built with all of it, so that nothing is compiled with other features than
//! the tests have compiled it with, and run.

use std::env;
use std::process::{Command, ExitCode};

use torture::harness::checkout::root;

/// Builds the program `name` (cargo is given `flags` too) and runs it with `words`.
pub(crate) fn run(name: &str, flags: &[&str], words: &[String]) -> ExitCode {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let built = Command::new(cargo)
        .current_dir(root())
        .args(["build", "--release", "--quiet", "--workspace", "--bin", name])
        .args(flags)
        .status();
    // Beside this program, where cargo puts both.
    let program = env::current_exe().map(|own| own.with_file_name(name));
    let ran = match (built, program) {
        (Ok(built), Ok(program)) if built.success() => Command::new(program).args(words).status(),
        (Err(error), _) | (_, Err(error)) => Err(error),
        _ => return ExitCode::FAILURE,
    };
    match ran {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name} does not start: {error}");
            ExitCode::FAILURE
        }
    }
}
