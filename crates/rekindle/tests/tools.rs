//! The commands that run tools of the Python package.

use std::path::Path;
use std::process::{Command, Output};

#[path = "../../../tests/support/executable.rs"]
mod executable;

fn rekindle(path: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rekindle"));
    command.env("PATH", path).args(words).output().expect("the program starts")
}

#[test]
fn an_installed_tool_runs_with_all_its_arguments() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = folder.path().join("rethinkdb-index-rebuild");
    executable::write_executable(&tool, "echo \"ran with $*\"\nexit 3");
    let output = rekindle(folder.path(), &["index-rebuild", "-c", "db:28015", "--help", "-n", "2"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran with -c db:28015 --help -n 2\n");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_missing_tool_says_how_to_install_and_run_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for tool in ["dump", "restore", "export", "import", "index-rebuild", "repl"] {
        let output = rekindle(folder.path(), &[tool, "-c", "db:28015"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("rethinkdb-tools/bin/pip install rethinkdb\n"), "{said}");
        assert!(said.ends_with(&format!("rethinkdb-tools/bin/rethinkdb-{tool} -c db:28015\n")), "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
}
