//! The developers' tool: `cargo xtask tidy | crash | stats`.
#![forbid(unsafe_code)]

mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <task>

  tidy    check what a program can check of STYLE: layers, module circles, lengths, docstrings
";

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    match task.as_deref() {
        Some("tidy") => tidy::run(),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprint!("there is no task {other:?}\n\n{HELP}");
            ExitCode::FAILURE
        }
        None => {
            eprint!("{HELP}");
            ExitCode::FAILURE
        }
    }
}
