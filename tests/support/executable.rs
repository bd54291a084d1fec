//! Scripts that tests write and run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script for `sh` to `path`, which can be run at once, beside tests that start programs in other threads.
///
/// A separate process writes the file and ends. If this process wrote it, a child that another thread starts at that
/// moment would inherit the open file until its exec, and running the script would fail with `ETXTBSY` (execve(2)).
pub fn write_executable(path: &Path, script: &str) {
    let mut writer = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install starts");
    let text = format!("#!/bin/sh\n{script}\n");
    writer.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    assert!(writer.wait().expect("install ends").success(), "{}", path.display());
}
