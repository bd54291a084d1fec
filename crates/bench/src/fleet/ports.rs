//! The ports of a fleet before it has them.

use std::net::TcpListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::{CLUSTER_PORT, DRIVER_PORT, FleetPlan, PAUSE};
use crate::machine::watch::HTTP_PORT;

/// What has been killed, as the nodes of the cluster before, may have its ports for a moment longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Fails if somebody listens at a port that a node of `plan` would have.
pub(super) fn are_free(plan: &FleetPlan) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let Some((port, whose)) = taken(plan) else { return Ok(()) };
        if started.elapsed() > PATIENCE {
            bail!(
                "port {port} on 127.0.0.1, {whose}, is in use by another program: stop that, or choose other ports with \
                 --port-offset (now {})",
                plan.port_offset
            );
        }
        sleep(PAUSE);
    }
}

/// The first port that is in use, and whose it would be.
fn taken(plan: &FleetPlan) -> Option<(u16, String)> {
    let kinds = [(DRIVER_PORT, "for drivers"), (CLUSTER_PORT, "for other nodes"), (HTTP_PORT, "for HTTP")];
    (0..plan.nodes).flat_map(|number| kinds.map(|(first, what)| (number, first, what))).find_map(
        |(number, first, what)| {
            let port = first + plan.port_offset + number as u16;
            let whose = || format!("that of node{number} {what}");
            TcpListener::bind(("127.0.0.1", port)).err().map(|_| (port, whose()))
        },
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::Fleet;
    use super::*;

    #[test]
    fn a_port_that_somebody_has_is_refused_before_anything_is_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let (listener, port_offset) = (1..2_000)
            .find_map(|offset| {
                Some((TcpListener::bind(("127.0.0.1", CLUSTER_PORT + 1 + offset)).ok()?, offset))
            })
            .expect("a port");
        let plan = FleetPlan {
            binary: PathBuf::from("/bin/false"),
            folder: folder.path().join("nodes"),
            nodes: 2,
            port_offset,
            cache_mb: 100,
            flags: Vec::new(),
        };
        let why = Fleet::start(&plan, None).err().expect("it is refused").to_string();
        let port = listener.local_addr().expect("an address").port();
        let expected =
            format!("port {port} on 127.0.0.1, that of node1 for other nodes, is in use by another program");
        assert!(why.starts_with(&expected), "{why}");
        assert!(!plan.folder.exists());
    }
}
