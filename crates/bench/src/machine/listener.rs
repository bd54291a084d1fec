//! Finds the process that listens on a local port, so that a server on this machine is watched without naming its
//! process id.

use std::fs;
use std::path::Path;

const STATE_LISTEN: &str = "0A";

/// The process that listens on `port` of this machine, if it is visible to this user.
pub fn pid_of_port(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    fs::read_dir("/proc").ok()?.filter_map(Result::ok).find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        holds_socket(&entry.path().join("fd"), &wanted).then_some(pid)
    })
}

fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let inode_of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == STATE_LISTEN;
        listens.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().skip(1).filter_map(inode_of).collect()
}

fn holds_socket(descriptors: &Path, wanted: &[String]) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else { return false };
    entries.filter_map(Result::ok).any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| wanted.iter().any(|w| target.as_os_str() == w.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::pid_of_port;

    #[test]
    fn our_own_listener_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(pid_of_port(port), Some(std::process::id()));
    }
}
