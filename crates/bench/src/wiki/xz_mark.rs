//! The mark of a strong compressor that cannot be read at random: what all rows take as one stream with `xz -9`.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use super::rows::{RowFile, RowsError};

/// Why there is no mark.
#[derive(Debug, thiserror::Error)]
pub enum XzError {
    /// Usually because it is not installed.
    #[error("xz cannot be started (Debian's package xz-utils has it): {0}")]
    Start(io::Error),
    /// It has no pipes, ended early, or lacks memory: it needs 700 MB.
    #[error("xz has failed: {0}")]
    Failed(String),
    /// The rows cannot be read again.
    #[error(transparent)]
    Rows(#[from] RowsError),
}

/// The share of their bytes that the documents of `rows` take as one stream with `xz -9`. Takes about half a second for
/// each megabyte, and 700 MB of memory. The program ends with this one, because its input ends.
pub fn xz_share(rows: &mut RowFile) -> Result<f64, XzError> {
    let mut command = Command::new("xz");
    command.args(["-9", "--threads=1", "--stdout"]);
    share_with(command, rows)
}

fn share_with(mut command: Command, rows: &mut RowFile) -> Result<f64, XzError> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(XzError::Start)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(mut output), Some(mut errors)) = pipes else {
        return Err(XzError::Failed("it has no pipes".to_owned()));
    };
    let counting = thread::spawn(move || io::copy(&mut output, &mut io::sink()));
    let fed = feed(rows, input);
    let stored = counting.join().map_err(|_| XzError::Failed("its output was not read".to_owned()))?;
    let mut said = String::new();
    // Without a message the status has to do.
    drop(errors.read_to_string(&mut said));
    let status = child.wait().map_err(|error| XzError::Failed(error.to_string()))?;
    if !status.success() {
        return Err(XzError::Failed(format!("{status} {}", said.trim())));
    }
    let (plain_bytes, stored_bytes) = (fed?, stored.map_err(|error| XzError::Failed(error.to_string()))?);
    match plain_bytes {
        0 => Err(XzError::Failed("there are no rows".to_owned())),
        plain_bytes => Ok(stored_bytes as f64 / plain_bytes as f64),
    }
}

/// Writes all documents; returns their bytes. The input ends when this returns.
fn feed(rows: &mut RowFile, input: impl Write) -> Result<u64, XzError> {
    let mut input = io::BufWriter::with_capacity(1 << 16, input);
    let mut plain_bytes = 0;
    while let Some(row) = rows.next_row()? {
        plain_bytes += row.document.len() as u64;
        input.write_all(row.document.as_bytes()).map_err(|error| XzError::Failed(error.to_string()))?;
    }
    input.flush().map_err(|error| XzError::Failed(error.to_string()))?;
    Ok(plain_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiki::rows::OnBrokenLine;

    fn file(folder: &std::path::Path, rows: usize) -> RowFile {
        let path = folder.join("rows.tsv");
        let line = |number| (0..15).map(|column| format!("{number}-{column}")).collect::<Vec<_>>().join("\t");
        let lines: Vec<String> = (0..rows).map(line).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        RowFile::open(&path, OnBrokenLine::Skip, true).unwrap()
    }

    #[test]
    fn the_share_is_that_of_what_comes_out() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(share_with(Command::new("cat"), &mut file(folder.path(), 1_000)).unwrap(), 1.0);
        let failed = share_with(Command::new("false"), &mut file(folder.path(), 1_000));
        assert!(matches!(failed, Err(XzError::Failed(_))), "{failed:?}");
        let missing = share_with(Command::new("/no/such/program"), &mut file(folder.path(), 1));
        assert!(matches!(missing, Err(XzError::Start(_))), "{missing:?}");
        assert!(share_with(Command::new("cat"), &mut file(folder.path(), 0)).is_err());
    }
}
