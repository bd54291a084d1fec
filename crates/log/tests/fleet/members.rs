//! Membership changes of the fleet.

use super::node::Rows;
use super::world::{GROUP, World};
use crate::lsn::Lsn;
use crate::member::{GroupStatus, InitialConfig, MemberChange, PeerId};
use crate::mutant::{self, Mutant};
use crate::proposal::Work;

impl World {
    /// Proposes a random membership change to a leader, and sometimes removes replicas that it no longer needs.
    pub(super) fn change_members(&mut self) -> Result<(), String> {
        let Some(leader) = (0..self.nodes.len()).find(|nth| self.leads(*nth)) else { return Ok(()) };
        let Some(status) = self.status(leader) else { return Ok(()) };
        self.discard_removed(&status)?;
        let members = status.members;
        let change = match self.random.below(3) {
            0 => {
                let nth = self.random.below(self.nodes.len() as u64) as usize;
                if self.nodes[nth].peer.is_none() {
                    self.join(nth);
                }
                // A replica that was to be removed is never added.
                let peer = self.nodes[nth].peer.filter(|peer| !self.expelled.contains(peer));
                peer.map(MemberChange::AddLearner)
            }
            1 => {
                let caught_up = |peer: &PeerId| {
                    status.peers.iter().any(|its| its.peer == *peer && its.matched.0 + 20 > status.last.0)
                };
                members.learners.into_iter().find(caught_up).map(MemberChange::Promote)
            }
            _ if members.voters.len() > 1 => {
                let nth = self.random.below(members.voters.len() as u64) as usize;
                members.voters.get(nth).copied().map(MemberChange::Remove)
            }
            _ => None,
        };
        if let Some(change) = change {
            if let MemberChange::Remove(peer) = change
                && !mutant::is_active(Mutant::ReusePeer)
            {
                self.expelled.insert(peer);
            }
            self.propose_work(leader, Work::Change(change));
        }
        Ok(())
    }

    /// Removes replicas that a leader no longer needs, as their owner does.
    fn discard_removed(&mut self, status: &GroupStatus) -> Result<(), String> {
        for peer in status.members.removed.iter().filter(|_| status.members_durable) {
            if let Some(nth) = self.node_of(*peer)
                && self.random.one_in(2)
            {
                self.nodes[nth].end_sync();
                if let Some(process) = &mut self.nodes[nth].process {
                    drop(process.runner.leave_group(GROUP));
                    self.forget_replica(nth)?;
                }
            }
        }
        Ok(())
    }

    /// Creates a replica on a node that has none.
    fn join(&mut self, nth: usize) {
        let own = match (&self.nodes[nth].initial, mutant::is_active(Mutant::ReusePeer)) {
            (InitialConfig::Joining { own }, true) => *own,
            _ => self.new_peer(),
        };
        let node = &mut self.nodes[nth];
        node.end_sync();
        let initial = InitialConfig::Joining { own };
        node.engine.replace(&Rows::new(), Lsn(0));
        let Some(process) = &mut node.process else { return };
        if process.runner.open_group(GROUP, Lsn(0), &initial).is_ok() {
            (node.peer, node.initial) = (Some(own), initial);
        }
    }
}
