//! One network namespace of this machine per node, so that any node can be cut off from any other. Needs `ip` and the
//! rights of root.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};

use super::process::run;

/// One namespace per node, joined by a bridge. Dropping this deletes them.
pub(crate) struct Namespaces {
    // Part of every name, so that two runs do not collide.
    run: u32,
    count: usize,
}

impl Namespaces {
    /// Creates `count` namespaces; on failure none of them is left.
    pub(crate) fn create(count: usize) -> Result<Namespaces> {
        let made = Namespaces { run: std::process::id() % 10_000, count };
        made.set_up().context("network namespaces need `ip` of iproute2 and the rights of root")?;
        Ok(made)
    }

    fn set_up(&self) -> Result<()> {
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", self.host()), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for nth in 0..self.count {
            let (name, outer) = (self.name(nth), self.outer(nth));
            let inner = format!("rk{}i{nth}", self.run);
            ip(&["netns", "add", &name])?;
            ip(&["link", "add", &outer, "type", "veth", "peer", "name", &inner])?;
            ip(&["link", "set", &outer, "master", &bridge, "up"])?;
            ip(&["link", "set", &inner, "netns", &name])?;
            ip(&["-n", &name, "addr", "add", &format!("{}/24", self.address(nth)), "dev", &inner])?;
            ip(&["-n", &name, "link", "set", &inner, "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    /// The namespace of node `nth`.
    pub(crate) fn name(&self, nth: usize) -> String {
        format!("rk{}n{nth}", self.run)
    }

    /// The address of node `nth`, which this process reaches too.
    pub(crate) fn address(&self, nth: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 64 + (self.run / 250) as u8, (self.run % 250) as u8, 11 + nth as u8)
    }

    /// The address of this process for all nodes.
    pub(crate) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 64 + (self.run / 250) as u8, (self.run % 250) as u8, 1)
    }

    /// The end of node `nth`'s veth pair that is in the bridge.
    fn outer(&self, nth: usize) -> String {
        format!("rk{}o{nth}", self.run)
    }

    fn bridge(&self) -> String {
        format!("rk{}br", self.run)
    }

    /// Drops packets from node `from` to node `to`; this process still reaches both.
    pub(crate) fn cut(&self, from: usize, to: usize) -> Result<()> {
        ip(&["-n", &self.name(from), "route", "add", "blackhole", &format!("{}/32", self.address(to))])
    }

    /// Undoes every cut.
    pub(crate) fn heal(&self) -> Result<()> {
        (0..self.count)
            .try_for_each(|nth| ip(&["-n", &self.name(nth), "route", "flush", "type", "blackhole"]))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Names that were never created fail to be deleted, which does no harm. The links go first: the kernel deletes
        // links of a deleted namespace some time later, when the next run may be creating its own.
        for nth in 0..self.count {
            drop(ip(&["link", "del", &self.outer(nth)]));
            drop(ip(&["netns", "del", &self.name(nth)]));
        }
        drop(ip(&["link", "del", &self.bridge()]));
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}
