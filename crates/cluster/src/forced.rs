//! Members of a group set by force, on this server and on others: the means of an emergency repair, which says when
//! (`repair`).

use std::cell::Cell;
use std::time::Duration;

use log::{GroupId, GroupStatus, LogError, Members, PeerId};

use crate::node::Core;
use crate::question::Question;
use crate::{AdminError, AskError, ReplicaConfig, ServerId, words};

/// How long a replica may take to go on alone: it applies all of its log.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether members of groups were set by force, or may have been, since it began: what fails after that has changed
/// something all the same.
#[derive(Default)]
pub(crate) struct Forced(Cell<bool>);

impl Forced {
    pub(crate) fn note(&self) {
        self.0.set(true);
    }

    /// The error that is true of the whole repair.
    pub(crate) fn error(&self, cause: AdminError) -> AdminError {
        match cause {
            cause if !self.0.get() => cause,
            AdminError::NoCatalog | AdminError::CatalogNoMajority { .. } => {
                AdminError::RepairBegun("nobody leads the catalog yet".to_owned())
            }
            cause => AdminError::RepairBegun(cause.to_string()),
        }
    }
}

impl Core {
    /// Makes `survivor` the only voter of a group; those of `others` that are connected follow it, and
    /// those that are not are removed from the group for good.
    pub(crate) fn go_on(
        &self,
        group: GroupId,
        survivor: ReplicaConfig,
        others: &[ReplicaConfig],
        forced: &Forced,
    ) -> Result<(), AdminError> {
        let (living, lost): (Vec<ReplicaConfig>, Vec<ReplicaConfig>) =
            others.iter().partition(|replica| self.is_connected(replica.server));
        let removed: Vec<PeerId> = lost.iter().map(|replica| replica.peer).collect();
        let members = Members { voters: vec![survivor.peer], removed, ..Members::default() };
        let members = self.reset(survivor.server, group, members, forced)?;
        let members = members.map_err(|why| {
            let (server, of) = (self.server_in_words(survivor.server), words::group(&self.catalog(), group));
            AdminError::Refused(format!("{server} does not go on with {of} alone: {why}"))
        })?;
        for other in living.iter().filter(|other| other.server != survivor.server) {
            // One that has no replica to follow with joins when the leader and the catalog say so.
            if let Err(why) = self.reset(other.server, group, members.clone(), forced)? {
                tracing::info!("server {} does not follow the shard yet: {why}", other.server);
            }
        }
        Ok(())
    }

    /// Sets the members of a group on a server; or why that one does not, because it has no such replica for
    /// example.
    fn reset(
        &self,
        server: ServerId,
        group: GroupId,
        members: Members,
        forced: &Forced,
    ) -> Result<Result<Members, String>, AdminError> {
        if server == self.identity.server {
            let outcome = self.log.reset_members(group, members);
            if let Err(error @ (LogError::NotOpen(_) | LogError::Void(_))) = outcome {
                return Ok(Err(error.to_string()));
            }
            forced.note();
            return Ok(Ok(outcome?));
        }
        let failed = |why: &str| {
            AdminError::Refused(format!("{} did not take part: {why}", self.server_in_words(server)))
        };
        let question = Question::ResetMembers { group, members: members.encode().into() };
        match self.ask(server, question.encode(), PATIENCE) {
            Ok(bytes) => {
                forced.note();
                Members::decode(&bytes).map(Ok).ok_or_else(|| failed("its answer makes no sense"))
            }
            Err(AskError::Refused { why, .. }) => Ok(Err(why)),
            Err(error @ AskError::NotConnected(_)) => Err(failed(&error.to_string())),
            Err(error @ AskError::NoAnswer(_)) => {
                // It may have done it.
                forced.note();
                Err(failed(&error.to_string()))
            }
        }
    }

    /// Sets the members of a group here because `from` says so, who repairs what has lost its majority.
    ///
    /// Refused unless that is so from here too: whoever asks may be cut off from those who live, or be nobody.
    pub(crate) fn reset_members_here(
        &self,
        from: ServerId,
        group: GroupId,
        members: Members,
    ) -> Result<Members, String> {
        let catalog = self.catalog();
        if catalog.server(from).is_none() || catalog.is_removed(from) {
            return Err(format!("server {from} is none of this cluster"));
        }
        let GroupStatus { own, members: present, .. } =
            self.log.group_status(group).map_err(|error| error.to_string())?;
        if self.is_proxy() && members.voters.contains(&own) {
            return Err("a proxy votes on nothing".to_owned());
        }
        // What was interrupted is repeated.
        let is_so_already = present.voters == members.voters;
        if !is_so_already && self.has_majority(&present, &[]) {
            return Err("most who vote in the group are connected here".to_owned());
        }
        self.log.reset_members(group, members).map_err(|error| error.to_string())
    }
}
