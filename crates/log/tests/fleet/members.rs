//! Replicas come and go.

use super::node::Rows;
use super::world::{GROUP, World};
use crate::lsn::Lsn;
use crate::member::{GroupStatus, InitialConfig, MemberChange, PeerId};
use crate::mutant::{self, Mutant};
use crate::proposal::Work;

impl World {
    /// A leader is asked to change its members, and may have those discarded whom it does not need any more.
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
                // Whoever was asked to leave is never asked to come.
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
            self.ask(leader, Work::Change(change));
        }
        Ok(())
    }

    /// Whoever owns the replicas discards those that a leader does not need any more.
    fn discard_removed(&mut self, status: &GroupStatus) -> Result<(), String> {
        for peer in status.members.removed.iter().filter(|_| status.members_durable) {
            if let Some(nth) = self.place_of(*peer)
                && self.random.one_in(2)
            {
                self.nodes[nth].end_sync();
                if let Some(life) = &mut self.nodes[nth].life {
                    drop(life.runner.leave_group(GROUP));
                    self.forget_replica(nth)?;
                }
            }
        }
        Ok(())
    }

    /// A new replica on a node that has none.
    fn join(&mut self, nth: usize) {
        let own = match (&self.nodes[nth].initial, mutant::is_active(Mutant::ReusePeer)) {
            (InitialConfig::Joining { own }, true) => *own,
            _ => self.new_peer(),
        };
        let node = &mut self.nodes[nth];
        node.end_sync();
        let initial = InitialConfig::Joining { own };
        node.engine.replace(&Rows::new(), Lsn(0));
        let Some(life) = &mut node.life else { return };
        if life.runner.open_group(GROUP, Lsn(0), &initial).is_ok() {
            (node.peer, node.initial) = (Some(own), initial);
        }
    }
}
