//! Checks the ports of a fleet before its nodes bind them.

use std::io;
use std::net::TcpListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::{CLUSTER_PORT, DRIVER_PORT, FleetPlan, POLL_INTERVAL};
use crate::machine::watch::HTTP_PORT;

/// Processes that were just killed, such as the nodes of the previous cluster, may keep their ports for a moment.
const PORT_RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Fails if a port of a node of `plan` is in use.
pub(super) fn are_free(plan: &FleetPlan) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let Some((port, purpose)) = ports(plan).find(|(port, _)| is_taken(*port)) else { return Ok(()) };
        if started.elapsed() > PORT_RELEASE_TIMEOUT {
            bail!(
                "port {port} on 127.0.0.1, {purpose}, is in use by another program: stop that, or choose other ports with \
                 --port-offset (now {})",
                plan.port_offset
            );
        }
        sleep(POLL_INTERVAL);
    }
}

/// Whether another program listens on the port. The node itself reports other errors.
fn is_taken(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Every port of the fleet and its purpose.
fn ports(plan: &FleetPlan) -> impl Iterator<Item = (u16, String)> {
    let serves_http = !plan.flags.iter().any(|flag| flag == "--no-http-admin");
    let http = serves_http.then_some((HTTP_PORT, "for HTTP"));
    let kinds = [Some((DRIVER_PORT, "for drivers")), Some((CLUSTER_PORT, "for other nodes")), http];
    let nodes =
        (0..plan.nodes).flat_map(move |number| kinds.into_iter().flatten().map(move |kind| (number, kind)));
    nodes.map(|(number, (first, what))| {
        (first + plan.port_offset + number as u16, format!("the port of node{number} {what}"))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_fleet_has_a_port_of_each_kind_for_each_node() {
        let mut plan = FleetPlan {
            binary: PathBuf::from("/bin/false"),
            folder: PathBuf::from("/nowhere"),
            nodes: 2,
            port_offset: 10,
            cache_mb: 100,
            flags: Vec::new(),
            group: None,
        };
        let all = |plan: &FleetPlan| ports(plan).map(|(port, _)| port).collect::<Vec<_>>();
        assert_eq!(all(&plan), [28025, 29025, 8090, 28026, 29026, 8091]);
        assert_eq!(ports(&plan).nth(4), Some((29026, "the port of node1 for other nodes".to_owned())));
        plan.flags.push("--no-http-admin".to_owned());
        assert_eq!(all(&plan), [28025, 29025, 28026, 29026]);
    }

    #[test]
    fn a_port_with_a_listener_is_taken() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        assert!(is_taken(listener.local_addr().expect("an address").port()));
    }
}
