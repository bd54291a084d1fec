//! A stand-in for the one server out on the internet that the conformance suite asks, in a network of its own: only that
//! network, and the processes started in it, know the address. Needs `unshare` and `ip`, and the rights of root.

use std::env;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use torture::harness::process::run;

/// Set for the process that runs inside: the network from which it was started.
const INSIDE: &str = "REKINDLE_OUTSIDE_OF";
/// Whom the suite asks, for an answer that takes ten seconds, and does not wait for as long.
const NAME: &str = "httpbin.org";
/// An address that is neither private nor reserved: the server asks no other.
const ADDRESS: &str = "9.0.0.9";

/// What the suite finds where it asks a server out on the internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// The stand-in.
    StandIn,
    /// Nobody.
    Missing,
}

/// Goes on in a network of its own where `httpbin.org` takes connections and does not answer. Where that is not allowed
/// it goes on as it was, and says so.
pub(crate) fn enter() -> Result<Outside> {
    let network = fs::read_link("/proc/self/ns/net").context("the network of this process")?;
    // Never in the network of the machine, whatever the variable says.
    if env::var_os(INSIDE).is_some_and(|outer| outer != *network.as_os_str()) {
        return stand_in();
    }
    let separate = ["--net", "--mount", "--propagation", "private", "--"];
    let may = Command::new("unshare").args(separate).args(["ip", "link", "set", "lo", "up"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("no network of its own (unshare, ip): cases that ask {NAME} fail");
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
    // Kept open, and never answered, until the process ends.
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    Ok(Outside::StandIn)
}
