//! Several nodes of the program under test that make one cluster on this machine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::message_delay::DelayProxies;
use super::namespaces::Namespaces;
use super::node::Node;

/// Nodes with folders and ports of their own, which they keep when they are started again.
pub struct Cluster {
    program: PathBuf,
    folder: PathBuf,
    addresses: Vec<Addresses>,
    nodes: Vec<Option<Node>>,
    flags: Vec<String>,
    /// Proxies between the nodes, if messages can be delayed.
    delays: Option<DelayProxies>,
    /// One network namespace per node; without, all nodes are on the loopback.
    network: Option<Namespaces>,
}

/// The addresses that a node always listens on.
#[derive(Clone, Copy)]
struct Addresses {
    driver: SocketAddr,
    cluster: SocketAddr,
}

/// RethinkDB's ports, for nodes in separate network namespaces.
const DRIVER_PORT: u16 = 28015;
const CLUSTER_PORT: u16 = 29015;

impl Cluster {
    /// Starts `count` nodes, called `n0`, `n1` and so on, each on its folder in `folder`, and waits until they are ready.
    pub fn start(program: &Path, folder: &Path, count: usize, flags: &[&str]) -> Result<Cluster> {
        Cluster::start_on(None, None, program, folder, addresses(count)?, flags)
    }

    /// The same with one address per node, so that traffic between nodes can be cut ([`Cluster::network`]).
    pub(crate) fn start_in_namespaces(
        program: &Path,
        folder: &Path,
        count: usize,
        flags: &[&str],
    ) -> Result<Cluster> {
        let network = Namespaces::create(count)?;
        let addresses = addresses_in_namespaces(&network, count);
        Cluster::start_on(Some(network), None, program, folder, addresses, flags)
    }

    /// The same with proxies that can delay messages between nodes ([`Cluster::delays`]) for times drawn by `seed`.
    pub(crate) fn start_with_delays(
        program: &Path,
        folder: &Path,
        count: usize,
        flags: &[&str],
        seed: u64,
    ) -> Result<Cluster> {
        let network = Namespaces::create(count)?;
        let addresses = addresses_in_namespaces(&network, count);
        let nodes = addresses.iter().map(|node| node.cluster).collect();
        let delays = DelayProxies::open(network.host(), nodes, seed)?;
        Cluster::start_on(Some(network), Some(delays), program, folder, addresses, flags)
    }

    fn start_on(
        network: Option<Namespaces>,
        delays: Option<DelayProxies>,
        program: &Path,
        folder: &Path,
        addresses: Vec<Addresses>,
        flags: &[&str],
    ) -> Result<Cluster> {
        let count = addresses.len();
        let mut cluster = Cluster {
            program: program.to_owned(),
            folder: folder.to_owned(),
            addresses,
            nodes: (0..count).map(|_| None).collect(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            delays,
            network,
        };
        for nth in 0..count {
            cluster.start_node(nth)?;
        }
        Ok(cluster)
    }

    /// Starts the stopped node `nth` and waits until it is ready.
    pub(crate) fn start_node(&mut self, nth: usize) -> Result<()> {
        let Addresses { driver, cluster } = self.addresses[nth];
        let (driver_port, cluster_port) = (driver.port().to_string(), cluster.port().to_string());
        let (name, address) = (format!("n{nth}"), cluster.ip().to_string());
        let mut flags = vec!["--driver-port", &driver_port, "--cluster-port", &cluster_port];
        flags.extend(["--server-name", &name]);
        let advertised = self.delays.as_ref().map_or(address.clone(), |delays| delays.proxy(nth).to_string());
        let mut program = Command::new(&self.program);
        if let Some(network) = &self.network {
            flags.extend([
                "--no-default-bind",
                "--bind",
                &address,
                "--canonical-address",
                &advertised,
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

    /// The first node bootstraps the cluster and the others join it; after a restart a node also knows its peers.
    fn peers_of(&self, nth: usize) -> impl Iterator<Item = String> {
        let first = self.addresses.first().filter(|_| nth > 0);
        let reached = |node: &Addresses| self.delays.as_ref().map_or(node.cluster, |delays| delays.proxy(0));
        first.map(|node| reached(node).to_string()).into_iter()
    }

    /// `kill -9` of node `nth`.
    pub(crate) fn kill(&mut self, nth: usize) -> Result<()> {
        match self.nodes[nth].take() {
            Some(mut node) => node.kill(),
            None => Ok(()),
        }
    }

    /// Terminates node `nth` and waits for its end.
    pub(crate) fn stop_node(&mut self, nth: usize) -> Result<()> {
        self.nodes[nth].take().map_or(Ok(()), Node::stop)
    }

    /// Terminates the nodes one after another and waits for each.
    pub fn stop(self) -> Result<()> {
        self.nodes.into_iter().flatten().try_for_each(Node::stop)
    }

    /// The process of node `nth` if it runs.
    pub(crate) fn pid(&self, nth: usize) -> Option<u32> {
        self.nodes[nth].as_ref().map(Node::pid)
    }

    /// The driver addresses of the nodes, in their order.
    pub fn drivers(&self) -> Vec<SocketAddr> {
        self.addresses.iter().map(|node| node.driver).collect()
    }

    /// Heals every cut and ends every delay.
    pub(crate) fn heal(&self) -> Result<()> {
        self.delays.iter().for_each(DelayProxies::stop_delaying);
        self.network.as_ref().map_or(Ok(()), Namespaces::heal)
    }

    /// The proxies between the nodes, if there are any.
    pub(crate) fn delays(&self) -> Option<&DelayProxies> {
        self.delays.as_ref()
    }

    /// The network namespaces of the nodes, if there are any.
    pub(crate) fn network(&self) -> Option<&Namespaces> {
        self.network.as_ref()
    }
}

/// A server with one core drives its links on the thread that serves drivers, any other on a separate thread. Every
/// cluster of several nodes has both kinds.
fn drives_links(nth: usize) -> bool {
    nth % 2 == 1
}

/// One address per node; all have the same ports.
fn addresses_in_namespaces(network: &Namespaces, count: usize) -> Vec<Addresses> {
    let at = |nth, port| SocketAddr::from((network.address(nth), port));
    (0..count).map(|nth| Addresses { driver: at(nth, DRIVER_PORT), cluster: at(nth, CLUSTER_PORT) }).collect()
}

/// Two unused ports for each of `count` nodes.
fn addresses(count: usize) -> Result<Vec<Addresses>> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port");
    // All ports stay bound until all are chosen, so that no two are the same.
    let held = (0..2 * count).map(|_| free()).collect::<Result<Vec<_>>>()?;
    let ports = held.iter().map(|one| Ok(one.local_addr()?)).collect::<Result<Vec<_>>>()?;
    Ok(ports.chunks(2).map(|pair| Addresses { driver: pair[0], cluster: pair[1] }).collect())
}
