//! The commands that run tools of the Python package.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

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

/// A folder with a tool that runs `script`, and with a dump of a table that has a hook.
fn restorer(script: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    executable::write_executable(&folder.path().join("rethinkdb-restore"), script);
    let archive = folder.path().join("dump.tar.gz");
    let file = File::create(&archive).expect("a file");
    let mut builder = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
    let info = r#"{"write_hook":{"function":{"$reql_type$":"BINARY","data":"AA=="},"query":"q"}}"#;
    for (name, text) in [("dump/shop/a.info", info), ("dump/shop/a.json", "[]")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        builder.append_data(&mut header, name, text.as_bytes()).expect("written");
    }
    builder.into_inner().and_then(GzEncoder::finish).expect("written");
    (folder, archive)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_restore_has_the_arguments_and_the_exit_code_of_the_tool() {
    let (folder, archive) = restorer("echo \"ran with $*\"\nexit 3");
    let archive = archive.to_string_lossy();
    for words in
        [&["restore", &archive, "-c", "db:1", "--force"][..], &["restore", "--help"], &["restore", "-x"]]
    {
        let output = rekindle(folder.path(), words);
        assert_eq!(text(&output.stdout), format!("ran with {}\n", words[1..].join(" ")));
        assert_eq!(output.status.code(), Some(3));
    }
    let output = rekindle(folder.path(), &["restore", &archive]);
    assert!(text(&output.stderr).contains("rethinkdb-restore failed (shop.a)"), "{}", text(&output.stderr));
}

#[test]
fn hooks_that_cannot_be_set_are_an_error() {
    let (folder, archive) = restorer("exit 0");
    let archive = archive.to_string_lossy();
    let refused = |words: &[&str]| {
        let output = rekindle(folder.path(), words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        text(&output.stderr)
    };
    let no_server = refused(&["restore", &archive, "-c", "localhost:1", "--tls-cert", "/no/such/file"]);
    assert!(
        no_server.contains("not all write hooks of shop.a are set: --tls-cert: /no/such/file"),
        "{no_server}"
    );
    let unknown = refused(&["restore", &archive, "--new-option"]);
    assert!(unknown.contains("does not know the option --new-option"), "{unknown}");
    std::fs::write(folder.path().join("text"), "no archive").expect("written");
    let path = folder.path().join("text");
    let unread = refused(&["restore", &path.to_string_lossy()]);
    assert!(unread.contains("the tables are restored, but") && unread.contains("cannot be read"), "{unread}");
    // A dump without hooks of the tables that are restored needs no server.
    let output = rekindle(folder.path(), &["restore", &archive, "-i", "other", "-c", "localhost:1"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn a_restore_reads_standard_input() {
    let (folder, archive) = restorer("/usr/bin/cmp \"$4\" \"$REKINDLE_TEST_ARCHIVE\" && exit 7");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rekindle"));
    command.env("PATH", folder.path()).env("REKINDLE_TEST_ARCHIVE", &archive).env("TMPDIR", folder.path());
    command.args(["restore", "-", "-c", "localhost:1"]).stdin(File::open(&archive).expect("a file"));
    let output = command.stdout(Stdio::piped()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stdout));
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 2);
}

#[test]
fn a_request_to_end_reaches_the_tool() {
    let (folder, archive) = restorer("trap 'exit 9' TERM\necho ready\nwhile :; do /bin/sleep 0.05; done");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rekindle"));
    command.env("PATH", folder.path()).arg("restore").arg(&archive).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut ready).expect("a line");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill starts").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
}
