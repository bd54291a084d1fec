//! Who of a group's members answers at this moment: asked before one of them loses its vote or another gets one.
//!
//! A leader hears of a cut late: in a group that rests nobody is asked, and a link counts as alive until its
//! heartbeat is overdue. Who changes voters meanwhile may leave a group of which no side of the cut has a majority.

use std::collections::BTreeSet;
use std::time::Duration;

use log::{GroupId, GroupStatus, PeerId};

use crate::ServerId;
use crate::answer::decode_ends;
use crate::node::Core;
use crate::question::Question;

/// Who does not answer for so long does not count. The step is looked at again soon.
const PATIENCE: Duration = Duration::from_millis(500);

/// The servers that did not answer while all groups were looked at once: none is waited for a second time.
#[derive(Default)]
pub(crate) struct Silent(BTreeSet<ServerId>);

impl Core {
    /// The same, with nobody said to answer whose replica is not on a server that answers now. Asks all others at the
    /// same time, and takes as long as the slowest, [`PATIENCE`] at most.
    pub(crate) fn answering(
        &self,
        group: GroupId,
        mut status: GroupStatus,
        silent: &mut Silent,
    ) -> GroupStatus {
        let counted = status.peers.iter().filter(|known| known.active);
        let places = counted.filter_map(|known| Some((known.peer, self.post.server_of(known.peer)?)));
        let asked: Vec<(PeerId, ServerId)> =
            places.filter(|(_, server)| !silent.0.contains(server)).collect();
        let question = Question::Ends { groups: vec![group] }.encode();
        let questions = asked.iter().map(|(_, server)| (*server, question.clone())).collect();
        let mut answered: BTreeSet<PeerId> = BTreeSet::new();
        for ((peer, server), answer) in asked.into_iter().zip(self.ask_all(questions, PATIENCE)) {
            match answer.and_then(decode_ends).as_deref() {
                Some([Some(end)]) if end.own == peer => drop(answered.insert(peer)),
                // Its replica is another, or has no rows.
                Some(_) => {}
                None => drop(silent.0.insert(server)),
            }
        }
        status.peers.iter_mut().for_each(|known| known.active = answered.contains(&known.peer));
        status
    }
}
