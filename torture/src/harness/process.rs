//! Running, signalling and killing processes.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a program to its end. Fails with its standard error.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("running {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Sends a process the signal of this name, such as `STOP` or `KILL`. Fails if there is no such process.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status()?;
    match status.success() {
        true => Ok(()),
        false => bail!("kill -{name} {pid}: {status}"),
    }
}

/// Kills a process and all its descendants.
pub fn kill_tree(pid: u32) {
    let children = children(pid);
    // The parent first: it could start another process.
    if let Err(cause) = signal(pid, "KILL") {
        eprintln!("{cause}");
    }
    children.into_iter().for_each(kill_tree);
}

fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn descendants_are_killed_with_a_process() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo started; wait"]).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut stdout = BufReader::new(shell.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        kill_tree(shell.id());
        assert!(!shell.wait().unwrap().success());
        // Ends only when every process has closed the pipe.
        assert_eq!(stdout.read_to_string(&mut String::new()).unwrap(), 0);
    }
}
