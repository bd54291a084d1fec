//! A stand-in for the one internet server that the conformance suite uses, in a separate network namespace: only
//! processes in that namespace reach it. Needs `unshare` and `ip`, and the rights of root.

use std::env;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use torture::harness::process::run;

/// Set for the process inside: the network namespace of its parent.
const INSIDE: &str = "REKINDLE_OUTSIDE_OF";
/// The server that the suite asks for a response after ten seconds; the suite stops waiting earlier.
const NAME: &str = "httpbin.org";
/// An address that is neither private nor reserved: the server connects to no others.
const ADDRESS: &str = "9.0.0.9";

/// The internet server that the suite finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    StandIn,
    /// None.
    Missing,
}

/// Restarts this program in a network namespace where `httpbin.org` accepts connections and does not respond. Where that
/// is not allowed, prints a message and continues without.
pub(crate) fn enter() -> Result<Outside> {
    let network = fs::read_link("/proc/self/ns/net").context("the network of this process")?;
    // Never in the machine's network, whatever the variable says.
    if env::var_os(INSIDE).is_some_and(|outer| outer != *network.as_os_str()) {
        return stand_in();
    }
    let separate = ["--net", "--mount", "--propagation", "private", "--"];
    let may = Command::new("unshare").args(separate).args(["ip", "link", "set", "lo", "up"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("no separate network namespace (unshare, ip): cases that need {NAME} fail");
        return Ok(Outside::Missing);
    }
    let mut again = Command::new("unshare");
    again.args(separate).arg(env::current_exe()?).args(env::args_os().skip(1)).env(INSIDE, network);
    // Returns only if it fails.
    Err(again.exec()).context("running unshare")
}

fn stand_in() -> Result<Outside> {
    run("ip", &["link", "set", "lo", "up"])?;
    run("ip", &["addr", "add", &format!("{ADDRESS}/32"), "dev", "lo"])?;
    let hosts = tempfile::NamedTempFile::new()?;
    let known = fs::read_to_string("/etc/hosts").unwrap_or_default();
    fs::write(&hosts, format!("{ADDRESS} {NAME}\n{known}"))?;
    fs::set_permissions(&hosts, Permissions::from_mode(0o644))?;
    let path = hosts.path().to_str().context("the name of a temporary file")?;
    run("mount", &["--bind", path, "/etc/hosts"])?;
    let listener = TcpListener::bind((ADDRESS, 80)).with_context(|| format!("listening on {ADDRESS}"))?;
    // Connections stay open without a response until the process ends.
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    Ok(Outside::StandIn)
}
