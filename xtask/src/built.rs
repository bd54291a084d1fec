//! Builds and runs programs of the workspace. The build is that of the whole workspace, so that no crate is compiled
//! again with other features than for the tests.

use std::env;
use std::process::{Command, ExitCode};

use torture::harness::checkout::root;

/// Builds the program `name` with these flags of cargo and runs it with `arguments`.
pub(crate) fn run(name: &str, flags: &[&str], arguments: &[String]) -> ExitCode {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let built = Command::new(cargo)
        .current_dir(root())
        .args(["build", "--release", "--quiet", "--workspace", "--bin", name])
        .args(flags)
        .status();
    // Cargo puts it beside this program.
    let program = env::current_exe().map(|own| own.with_file_name(name));
    let ran = match (built, program) {
        (Ok(built), Ok(program)) if built.success() => Command::new(program).args(arguments).status(),
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
