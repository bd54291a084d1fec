//! Several nodes of the program under test that make one cluster on this machine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::message_delay::LateWays;
use super::namespaces::Namespaces;
use super::node::Node;

/// Nodes with folders and ports of their own, which they keep when they are started again.
pub struct Cluster {
    program: PathBuf,
    folder: PathBuf,
    places: Vec<Place>,
    nodes: Vec<Option<Node>>,
    flags: Vec<String>,
    /// Where the nodes reach each other through proxies.
    late: Option<LateWays>,
    /// Where the nodes have addresses of their own; without, all are on the loopback.
    network: Option<Namespaces>,
}

/// Where a node listens whenever it runs.
#[derive(Clone, Copy)]
struct Place {
    driver: SocketAddr,
    cluster: SocketAddr,
}

/// RethinkDB's, which every node can have that has an address of its own.
const DRIVER_PORT: u16 = 28015;
const CLUSTER_PORT: u16 = 29015;

impl Cluster {
    /// Starts `count` nodes, each on a folder of its own in `folder`, and waits until they are ready.
    /// Server `n` is called `n0`, `n1` and so on.
    pub fn start(program: &Path, folder: &Path, count: usize, flags: &[&str]) -> Result<Cluster> {
        Cluster::start_on(None, None, program, folder, places(count)?, flags)
    }

    /// The same on addresses of their own, between which ways can be cut ([`Cluster::network`]).
    pub(crate) fn start_apart(
        program: &Path,
        folder: &Path,
        count: usize,
        flags: &[&str],
    ) -> Result<Cluster> {
        let network = Namespaces::create(count)?;
        let places = places_apart(&network, count);
        Cluster::start_on(Some(network), None, program, folder, places, flags)
    }

    /// The same with ways between them on which bytes can be held ([`Cluster::late`]), for whiles by `seed`.
    pub(crate) fn start_late(
        program: &Path,
        folder: &Path,
        count: usize,
        flags: &[&str],
        seed: u64,
    ) -> Result<Cluster> {
        let network = Namespaces::create(count)?;
        let places = places_apart(&network, count);
        let nodes = places.iter().map(|place| place.cluster).collect();
        let late = LateWays::open(network.host(), nodes, seed)?;
        Cluster::start_on(Some(network), Some(late), program, folder, places, flags)
    }

    fn start_on(
        network: Option<Namespaces>,
        late: Option<LateWays>,
        program: &Path,
        folder: &Path,
        places: Vec<Place>,
        flags: &[&str],
    ) -> Result<Cluster> {
        let count = places.len();
        let mut cluster = Cluster {
            program: program.to_owned(),
            folder: folder.to_owned(),
            places,
            nodes: (0..count).map(|_| None).collect(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            late,
            network,
        };
        for nth in 0..count {
            cluster.start_node(nth)?;
        }
        Ok(cluster)
    }

    /// Starts node `nth`, which does not run, and waits until it is ready.
    pub(crate) fn start_node(&mut self, nth: usize) -> Result<()> {
        let Place { driver, cluster } = self.places[nth];
        let (driver_port, cluster_port) = (driver.port().to_string(), cluster.port().to_string());
        let (name, address) = (format!("n{nth}"), cluster.ip().to_string());
        let mut flags = vec!["--driver-port", &driver_port, "--cluster-port", &cluster_port];
        flags.extend(["--server-name", &name]);
        let found_at = self.late.as_ref().map_or(address.clone(), |late| late.proxy(nth).to_string());
        let mut program = Command::new(&self.program);
        if let Some(network) = &self.network {
            flags.extend([
                "--no-default-bind",
                "--bind",
                &address,
                "--canonical-address",
                &found_at,
                "--insecure",
            ]);
            program = Command::new("ip");
            program.args(["netns", "exec", &network.name(nth)]).arg(&self.program);
        }
        let peers: Vec<String> = self.peers_of(nth).collect();
        peers.iter().for_each(|peer| flags.extend(["--join", peer]));
        if drives_links(nth) {
            flags.extend(["--cores", "1"]);
        }
        flags.extend(self.flags.iter().map(String::as_str));
        let mut node = Node::spawn(program, &self.folder.join(&name), &flags)?;
        node.wait_until_ready().with_context(|| format!("waiting for {name}"))?;
        self.nodes[nth] = Some(node);
        Ok(())
    }

    /// The first node founds the cluster, the others join it; later each finds those it knows.
    fn peers_of(&self, nth: usize) -> impl Iterator<Item = String> {
        let founder = self.places.first().filter(|_| nth > 0);
        let reached = |place: &Place| self.late.as_ref().map_or(place.cluster, |late| late.proxy(0));
        founder.map(|place| reached(place).to_string()).into_iter()
    }

    /// `kill -9` of node `nth`.
    pub(crate) fn kill(&mut self, nth: usize) -> Result<()> {
        match self.nodes[nth].take() {
            Some(mut node) => node.kill(),
            None => Ok(()),
        }
    }

    /// Asks all nodes to end, one after the other, and waits for each.
    pub fn stop(self) -> Result<()> {
        self.nodes.into_iter().flatten().try_for_each(Node::stop)
    }

    /// The process of node `nth`, if it runs.
    pub(crate) fn pid(&self, nth: usize) -> Option<u32> {
        self.nodes[nth].as_ref().map(Node::pid)
    }

    /// Where the nodes listen for drivers, in their order.
    pub fn drivers(&self) -> Vec<SocketAddr> {
        self.places.iter().map(|place| place.driver).collect()
    }

    /// Nodes reach each other again, and nothing is held any more.
    pub(crate) fn heal(&self) -> Result<()> {
        self.late.iter().for_each(LateWays::hurry);
        self.network.as_ref().map_or(Ok(()), Namespaces::heal)
    }

    /// What holds bytes between the nodes, if they reach each other through proxies.
    pub(crate) fn late(&self) -> Option<&LateWays> {
        self.late.as_ref()
    }

    /// What joins the nodes, if they have addresses of their own.
    pub(crate) fn network(&self) -> Option<&Namespaces> {
        self.network.as_ref()
    }
}

/// A server with one core drives its links with the thread that serves drivers, others with a thread of their own:
/// every cluster of several has both.
fn drives_links(nth: usize) -> bool {
    nth % 2 == 1
}

/// Every node has an address of its own, and all have the same ports.
fn places_apart(network: &Namespaces, count: usize) -> Vec<Place> {
    let at = |nth, port| SocketAddr::from((network.address(nth), port));
    (0..count).map(|nth| Place { driver: at(nth, DRIVER_PORT), cluster: at(nth, CLUSTER_PORT) }).collect()
}

/// Ports that nobody uses now, two for each of `count` nodes.
fn places(count: usize) -> Result<Vec<Place>> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port");
    // All are held until all are chosen, so that no two are the same.
    let held = (0..2 * count).map(|_| free()).collect::<Result<Vec<_>>>()?;
    let ports = held.iter().map(|one| Ok(one.local_addr()?)).collect::<Result<Vec<_>>>()?;
    Ok(ports.chunks(2).map(|pair| Place { driver: pair[0], cluster: pair[1] }).collect())
}
