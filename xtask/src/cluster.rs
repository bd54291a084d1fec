//! Several nodes of the program under test that make one cluster on this machine.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::{Node, Ports};

/// Nodes with folders and ports of their own, which they keep when they are started again.
pub(crate) struct Cluster {
    program: PathBuf,
    folder: PathBuf,
    places: Vec<Place>,
    nodes: Vec<Option<Node>>,
    flags: Vec<String>,
}

/// Where a node listens whenever it runs.
#[derive(Clone, Copy)]
struct Place {
    driver: u16,
    cluster: u16,
}

impl Cluster {
    /// Starts `count` nodes, each on a folder of its own in `folder`, and waits until they are ready.
    /// Server `n` is called `n0`, `n1` and so on.
    pub(crate) fn start(program: &Path, folder: &Path, count: usize, flags: &[&str]) -> Result<Cluster> {
        let mut cluster = Cluster {
            program: program.to_owned(),
            folder: folder.to_owned(),
            places: places(count)?,
            nodes: (0..count).map(|_| None).collect(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        for nth in 0..count {
            cluster.start_node(nth)?;
        }
        Ok(cluster)
    }

    /// Starts node `nth`, which does not run, and waits until it is ready.
    pub(crate) fn start_node(&mut self, nth: usize) -> Result<()> {
        let (driver, cluster) = (self.places[nth].driver.to_string(), self.places[nth].cluster.to_string());
        let name = format!("n{nth}");
        let mut flags = vec!["--driver-port", &driver, "--cluster-port", &cluster, "--server-name", &name];
        let peers: Vec<String> = self.peers_of(nth).collect();
        peers.iter().for_each(|peer| flags.extend(["--join", peer]));
        flags.extend(self.flags.iter().map(String::as_str));
        let mut node = Node::start_with(&self.program, &self.folder.join(&name), &flags)?;
        node.wait_until_ready().with_context(|| format!("waiting for {name}"))?;
        self.nodes[nth] = Some(node);
        Ok(())
    }

    /// The first node founds the cluster, the others join it; later each finds those it knows.
    fn peers_of(&self, nth: usize) -> impl Iterator<Item = String> {
        let founder = self.places.first().filter(|_| nth > 0);
        founder.map(|place| format!("127.0.0.1:{}", place.cluster)).into_iter()
    }

    /// `kill -9` of node `nth`.
    pub(crate) fn kill(&mut self, nth: usize) -> Result<()> {
        match self.nodes[nth].take() {
            Some(mut node) => node.kill(),
            None => Ok(()),
        }
    }

    /// The process of node `nth`, if it runs.
    pub(crate) fn pid(&self, nth: usize) -> Option<u32> {
        self.nodes[nth].as_ref().map(Node::pid)
    }

    /// The driver ports, in the order of the nodes.
    pub(crate) fn driver_ports(&self) -> Vec<u16> {
        self.places.iter().map(|place| place.driver).collect()
    }

    /// Where the first node listens.
    pub(crate) fn first(&self) -> Ports {
        Ports { driver: self.places[0].driver, http: None }
    }
}

/// Ports that nobody uses now, two for each of `count` nodes.
fn places(count: usize) -> Result<Vec<Place>> {
    let free = || TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port");
    // All are held until all are chosen, so that no two are the same.
    let held = (0..2 * count).map(|_| free()).collect::<Result<Vec<_>>>()?;
    let ports = held.iter().map(|one| Ok(one.local_addr()?.port())).collect::<Result<Vec<_>>>()?;
    Ok(ports.chunks(2).map(|pair| Place { driver: pair[0], cluster: pair[1] }).collect())
}
