//! Nodes on network addresses of their own, in namespaces of this machine's network, so that any of
//! them can be cut off from any other. Needs `ip` and the rights of root.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};

use super::process::run;

/// One namespace per node, joined by a bridge; everything is gone when dropped.
pub(crate) struct Namespaces {
    // Part of every name, so that two runs do not meet.
    mark: u32,
    count: usize,
}

impl Namespaces {
    /// Makes `count` namespaces. Fails, and leaves nothing, where that is not allowed.
    pub(crate) fn create(count: usize) -> Result<Namespaces> {
        let made = Namespaces { mark: std::process::id() % 10_000, count };
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
            let inner = format!("rk{}i{nth}", self.mark);
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
        format!("rk{}n{nth}", self.mark)
    }

    /// The address of node `nth`, also as seen from here.
    pub(crate) fn address(&self, nth: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 64 + (self.mark / 250) as u8, (self.mark % 250) as u8, 11 + nth as u8)
    }

    /// The address of this side, as seen by all nodes.
    pub(crate) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 64 + (self.mark / 250) as u8, (self.mark % 250) as u8, 1)
    }

    /// The end of node `nth`'s cable that is plugged into the bridge.
    fn outer(&self, nth: usize) -> String {
        format!("rk{}o{nth}", self.mark)
    }

    fn bridge(&self) -> String {
        format!("rk{}br", self.mark)
    }

    /// Cuts the way from node `from` to node `to`; whoever is here still reaches both.
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
        // What was never made cannot be removed, and nobody waits for either. The cables go first: with their
        // namespace they would go some time later, when the next run may be making its own.
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
