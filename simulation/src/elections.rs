//! A witness of elections: stands between the logs of all machines and those whom they tell of their
//! roles, and remembers who led what in which term.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::Post;
use log::{GroupId, GroupObserver, PeerId, Role, Term};
use parking_lot::Mutex;

/// What is known of elections; shared by all machines of a seed.
#[derive(Clone, Default)]
pub struct Elections(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    // The machine that led.
    leaders: BTreeMap<(GroupId, Term), usize>,
    // What each machine told last.
    roles: BTreeMap<(GroupId, usize), Role>,
    broken: Option<String>,
}

impl Elections {
    /// Two that led in one term, if that was seen.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.0.lock().broken.clone()
    }

    /// The term that a machine told of last, and whether it leads in it.
    #[must_use]
    pub fn of(&self, group: GroupId, machine: usize) -> (Term, bool) {
        match self.0.lock().roles.get(&(group, machine)) {
            Some(Role::Leader { term }) => (*term, true),
            Some(Role::Follower { term, .. }) => (*term, false),
            None => (Term(0), false),
        }
    }

    /// Every group that was told of.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<GroupId> {
        self.0.lock().roles.keys().map(|(group, _)| *group).collect()
    }

    fn note(&self, group: GroupId, machine: usize, role: Role) {
        let mut seen = self.0.lock();
        seen.roles.insert((group, machine), role);
        let Role::Leader { term } = role else { return };
        let first = *seen.leaders.entry((group, term)).or_insert(machine);
        if first != machine {
            let what = format!("nodes {first} and {machine} both lead group {group} in term {term}");
            seen.broken.get_or_insert(what);
        }
    }
}

/// Hears what the log of one machine tells.
pub struct Witness {
    /// Who hears of it then.
    pub post: Arc<Post>,
    /// What is known.
    pub elections: Elections,
    /// The machine.
    pub machine: usize,
}

impl GroupObserver for Witness {
    fn role_changed(&self, id: GroupId, role: Role) {
        self.elections.note(id, self.machine, role);
        self.post.role_changed(id, role);
    }

    fn voters_changed(&self, id: GroupId, voters: &[PeerId]) {
        self.post.voters_changed(id, voters);
    }

    fn snapshot_needed(&self, id: GroupId, to: PeerId) {
        self.post.snapshot_needed(id, to);
    }

    fn rows_needed(&self, id: GroupId) {
        self.post.rows_needed(id);
    }

    fn removed(&self, id: GroupId) {
        self.post.removed(id);
    }
}
