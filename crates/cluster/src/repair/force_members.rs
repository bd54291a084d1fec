//! Sets the members of a group by force, on this server and on others: the means of an emergency repair.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use log::{GroupId, GroupStatus, Log, LogError, Members, PeerId};

use super::lost_servers::{LostServerLookup, LostServers};
use super::survivor::Survivors;
use crate::catalog::{CatalogClient, Handles, display_names};
use crate::config::{ReplicaConfig, ServerId};
use crate::error::AdminError;
use crate::rpc::{Peers, Request, RpcError};

/// How long a replica may take to become the only voter: it applies all of its log.
const RESET_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether members of groups were set by force, or may have been, since it began: what fails after that has changed
/// something all the same.
#[derive(Default)]
pub(crate) struct ForcedMembers(Cell<bool>);

impl ForcedMembers {
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

/// Sets the members of groups by force.
pub(crate) struct MemberReset {
    own: ServerId,
    peers: Arc<Peers>,
    log: Arc<dyn Log>,
    catalog: Arc<CatalogClient>,
    survivors: Arc<Survivors>,
    lost: Arc<LostServerLookup>,
}

impl MemberReset {
    pub(super) fn new(
        handles: &Handles,
        survivors: Arc<Survivors>,
        lost: Arc<LostServerLookup>,
    ) -> MemberReset {
        MemberReset {
            own: handles.own,
            peers: handles.peers.clone(),
            log: handles.log.clone(),
            catalog: handles.catalog.clone(),
            survivors,
            lost,
        }
    }

    fn name_of(&self, server: ServerId) -> String {
        display_names::server(&self.catalog.shown(), server)
    }

    /// Makes `survivor` the only voter of a group; those of `others` that are not given up follow it, and
    /// those that are given up are removed from the group for good.
    ///
    /// Fails before anything is done if others of these are away now than were given up, or if the survivor does not go on; and
    /// later, if one of those who are to follow knows the same members as the survivor, and sees most of them.
    pub(crate) fn go_on(
        &self,
        group: GroupId,
        survivor: ReplicaConfig,
        others: &[ReplicaConfig],
        lost_servers: &LostServers,
        forced: &ForcedMembers,
    ) -> Result<(), AdminError> {
        self.lost.check(lost_servers, others)?;
        let of = display_names::group(&self.catalog.shown(), group);
        let refused = |server: ServerId, why: &str| {
            let server = self.name_of(server);
            AdminError::Refused(format!("{server} does not go on with {of} alone: {why}"))
        };
        let before = self.survivors.end_on(survivor.server, group);
        let before = before.ok_or_else(|| refused(survivor.server, "it does not say what it has of it"))?;
        let (lost, living): (Vec<ReplicaConfig>, Vec<ReplicaConfig>) =
            others.iter().partition(|replica| lost_servers.has(replica.server));
        let removed: Vec<PeerId> = lost.iter().map(|replica| replica.peer).collect();
        let members = Members { voters: vec![survivor.peer], removed, ..Members::default() };
        let members = self.reset(survivor.server, group, members, forced)?;
        let members = members.map_err(|why| refused(survivor.server, &why))?;
        let without: BTreeSet<ServerId> = lost.iter().map(|replica| replica.server).collect();
        tracing::warn!(
            "Emergency repair: {of} goes on with what {} has of it, without {}",
            self.name_of(survivor.server),
            display_names::servers(&self.catalog.shown(), &without)
        );
        // Who has no vote and is away joins later, as who is asked and has nothing to follow with.
        let follows = |other: &&ReplicaConfig| {
            other.server != survivor.server && (other.voting || self.peers.is_connected(other.server))
        };
        for other in living.iter().filter(follows) {
            let why = match self.reset(other.server, group, members.clone(), forced) {
                Ok(Ok(_)) => continue,
                Ok(Err(why)) => why,
                Err(cause) if !other.voting => cause.to_string(),
                Err(cause) => return Err(cause),
            };
            let end = self.survivors.end_on(other.server, group);
            if end.is_some_and(|end| end.members.at >= before.members.at && end.members != members) {
                let (other, of) =
                    (self.name_of(other.server), display_names::group(&self.catalog.shown(), group));
                return Err(AdminError::Refused(format!(
                    "{other} does not follow the others in {of}: {why}"
                )));
            }
            // One that has no replica to follow with, or an old one, joins when the leader and the catalog say so.
            tracing::info!("server {} does not follow the shard yet: {why}", other.server);
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
        forced: &ForcedMembers,
    ) -> Result<Result<Members, String>, AdminError> {
        if server == self.own {
            return self.reset_own(group, members, forced);
        }
        let failed =
            |why: &str| AdminError::Refused(format!("{} did not take part: {why}", self.name_of(server)));
        let request = Request::ResetMembers { group, members: members.encode().into() };
        match self.peers.call(server, request.encode(), RESET_TIMEOUT) {
            Ok(bytes) => {
                forced.note();
                Members::decode(&bytes).map(Ok).ok_or_else(|| failed("its answer makes no sense"))
            }
            Err(RpcError::Refused { why, .. }) => {
                // A disk that fails refuses as well, and may have kept them all the same.
                let end = self.survivors.end_on(server, group);
                if end.is_none_or(|end| end.members.voters == members.voters) {
                    forced.note();
                }
                Ok(Err(why))
            }
            Err(error @ RpcError::NotConnected(_)) => Err(failed(&error.to_string())),
            Err(error @ RpcError::NoAnswer(_)) => {
                // It may have done it.
                forced.note();
                Err(failed(&error.to_string()))
            }
        }
    }

    fn reset_own(
        &self,
        group: GroupId,
        members: Members,
        forced: &ForcedMembers,
    ) -> Result<Result<Members, String>, AdminError> {
        if let Err(why) = self.may_be_reset(group, &members) {
            return Ok(Err(why));
        }
        let outcome = self.log.reset_members(group, members);
        if let Err(error @ (LogError::NotOpen(_) | LogError::InvalidRows(_))) = outcome {
            return Ok(Err(error.to_string()));
        }
        forced.note();
        Ok(Ok(outcome?))
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
        let catalog = self.catalog.shown();
        if catalog.server(from).is_none() || catalog.is_removed(from) {
            return Err(format!("server {from} is none of this cluster"));
        }
        self.may_be_reset(group, &members)?;
        self.log.reset_members(group, members).map_err(|error| error.to_string())
    }

    /// Fails, and says why, if the members of a group must not become these, as far as this server sees.
    fn may_be_reset(&self, group: GroupId, members: &Members) -> Result<(), String> {
        let GroupStatus { own, members: present, .. } =
            self.log.group_status(group).map_err(|error| error.to_string())?;
        if self.catalog.is_proxy() && members.voters.contains(&own) {
            return Err("a proxy votes on nothing".to_owned());
        }
        // What was interrupted is repeated.
        let is_so_already = present.voters == members.voters;
        if !is_so_already && self.catalog.is_quorum_connected(&present, &[]) {
            return Err("most who vote in the group are connected here".to_owned());
        }
        Ok(())
    }
}
