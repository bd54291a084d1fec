//! Observes the elections of all logs and records the leader of each group and term.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::Wiring;
use log::{GroupId, GroupObserver, PeerId, Role, Term};
use parking_lot::Mutex;

/// All observed elections, shared by the machines of a seed.
#[derive(Clone, Default)]
pub struct Elections(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    // The machine of the leader.
    leaders: BTreeMap<(GroupId, Term), usize>,
    // The last reported role of each machine.
    roles: BTreeMap<(GroupId, usize), Role>,
    conflict: Option<String>,
}

impl Elections {
    /// Two leaders of one term, if there were any.
    #[must_use]
    pub fn conflict(&self) -> Option<String> {
        self.0.lock().conflict.clone()
    }

    /// The last reported term of a machine, and whether it leads in that term.
    #[must_use]
    pub fn of(&self, group: GroupId, machine: usize) -> (Term, bool) {
        match self.0.lock().roles.get(&(group, machine)) {
            Some(Role::Leader { term }) => (*term, true),
            Some(Role::Follower { term, .. }) => (*term, false),
            None => (Term(0), false),
        }
    }

    /// Every group with a reported role.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<GroupId> {
        self.0.lock().roles.keys().map(|(group, _)| *group).collect()
    }

    fn record(&self, group: GroupId, machine: usize, role: Role) {
        let mut seen = self.0.lock();
        seen.roles.insert((group, machine), role);
        let Role::Leader { term } = role else { return };
        let first = *seen.leaders.entry((group, term)).or_insert(machine);
        if first != machine {
            let what = format!("nodes {first} and {machine} both lead group {group} in term {term}");
            seen.conflict.get_or_insert(what);
        }
    }
}

/// The observer of the log of one machine.
pub struct ElectionObserver {
    /// The next observer, which gets every call.
    pub wiring: Wiring,
    /// The shared record.
    pub elections: Elections,
    pub machine: usize,
}

impl GroupObserver for ElectionObserver {
    fn role_changed(&self, id: GroupId, role: Role) {
        self.elections.record(id, self.machine, role);
        self.wiring.leadership.role_changed(id, role);
    }

    fn voters_changed(&self, id: GroupId, voters: &[PeerId]) {
        self.wiring.leadership.voters_changed(id, voters);
    }

    fn snapshot_needed(&self, id: GroupId, to: PeerId) {
        self.wiring.leadership.snapshot_needed(id, to);
    }

    fn rows_needed(&self, id: GroupId) {
        self.wiring.leadership.rows_needed(id);
    }

    fn removed(&self, id: GroupId) {
        self.wiring.leadership.removed(id);
    }
}
