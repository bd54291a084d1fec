//! `sim`: builds the simulation of whole clusters, such that faults can be planted, and hands the rest of
//! the words to it.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs it.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Command::new(cargo)
        .current_dir(&root)
        .args(["build", "--release", "--quiet", "--workspace", "--bin", "rekindle-simulation"])
        .args(["--features", "rekindle-simulation/mutants"])
        .status();
    // Beside this program, where cargo puts both.
    let program = env::current_exe().map(|own| own.with_file_name("rekindle-simulation"));
    let ran = match (built, program) {
        (Ok(built), Ok(program)) if built.success() => Command::new(program).args(words).status(),
        (Err(error), _) | (_, Err(error)) => Err(error),
        _ => return ExitCode::FAILURE,
    };
    match ran {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the simulation does not start: {error}");
            ExitCode::FAILURE
        }
    }
}
