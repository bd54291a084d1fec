//! Who is given up in an emergency repair: servers that do not come back for a while, and that nobody sees who is
//! connected. Decision 0015.

use std::collections::BTreeSet;
use std::time::Duration;

use io::task;

use crate::majority::{MAJORITY_PATIENCE, PAUSE};
use crate::most_complete::everyone;
use crate::node::Core;
use crate::{AdminError, Catalog, ReplicaConfig, ServerId};

/// Servers that are not connected, and that nobody sees who is.
pub(crate) struct GivenUp(BTreeSet<ServerId>);

impl GivenUp {
    pub(crate) fn has(&self, server: ServerId) -> bool {
        self.0.contains(&server)
    }
}

impl Core {
    /// From now on a repair that is asked of this server gives others so long to come back: for tests, which know that
    /// they do not.
    #[doc(hidden)]
    pub fn set_return_patience(&self, patience: Duration) {
        *self.return_patience.lock() = Some(patience);
    }

    /// What `look` finds, and who is given up with it. Fails as `look` does, and where servers are seen by others alone.
    pub(crate) fn judge<T>(
        &self,
        look: impl Fn() -> Result<T, AdminError>,
    ) -> Result<(T, GivenUp), AdminError> {
        let away = self.away();
        let found = look()?;
        self.sights().refuse_hidden(&self.catalog())?;
        match self.away() == away {
            true => Ok((found, GivenUp(away))),
            false => Err(AdminError::Unsteady),
        }
    }

    /// As [`Core::judge`], when those who are away have had a few seconds to come back. Where `look` finds
    /// nothing, or nobody can come back, it is not waited for.
    pub(crate) fn judge_patiently<T>(
        &self,
        look: impl Fn() -> Result<T, AdminError>,
    ) -> Result<(T, GivenUp), AdminError> {
        let until = task::now() + self.return_patience.lock().unwrap_or(MAJORITY_PATIENCE);
        loop {
            let away = self.away();
            let judged = self.judge(&look);
            let may_be_otherwise_soon = matches!(
                judged,
                Ok(_) | Err(AdminError::Hidden { .. } | AdminError::Silent { .. } | AdminError::Unsteady)
            );
            let catalog = self.catalog();
            let nobody_returns = away.iter().all(|server| catalog.is_removed(*server));
            if !may_be_otherwise_soon || nobody_returns && judged.is_ok() || task::now() >= until {
                return judged;
            }
            while task::now() < until && self.away() == away {
                task::sleep(PAUSE);
            }
        }
    }

    /// Fails if others of these replicas are away than were given up, or if one of those has come back and was not removed.
    ///
    /// Whoever has no vote and was not given up may come and go: nothing hangs on it, and it follows later.
    pub(crate) fn check_given_up<'a>(
        &self,
        given_up: &GivenUp,
        replicas: impl IntoIterator<Item = &'a ReplicaConfig>,
    ) -> Result<(), AdminError> {
        let catalog = self.catalog();
        let is_as_judged = |replica: &ReplicaConfig| match given_up.has(replica.server) {
            true => !self.is_connected(replica.server) || catalog.is_removed(replica.server),
            false => !replica.voting || self.is_connected(replica.server),
        };
        match replicas.into_iter().all(is_as_judged) {
            true => Ok(()),
            false => Err(AdminError::Unsteady),
        }
    }

    /// Whoever the catalog names and is not connected.
    fn away(&self) -> BTreeSet<ServerId> {
        named_in(&self.catalog()).into_iter().filter(|server| !self.is_connected(*server)).collect()
    }
}

/// The servers of a catalog, and those that its tables have or had replicas on.
fn named_in(catalog: &Catalog) -> BTreeSet<ServerId> {
    let configs = || catalog.tables().into_iter().map(|table| &table.config);
    let present = configs().flat_map(|config| &config.shards).flat_map(everyone);
    let before = configs().flat_map(|config| &config.lineage.sealed).flat_map(|sealed| &sealed.replicas);
    let replicas = present.chain(before).map(|replica| replica.server);
    catalog.servers().into_iter().map(|server| server.id).chain(replicas).collect()
}
