//! Sets the members of a group by force, on this server and on others, for an emergency repair.

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

/// How long a replica may take to become the only voter, for which it applies all of its log.
const RESET_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether a repair has, or may have, set members of groups by force: an error after that does not mean that nothing
/// changed.
#[derive(Default)]
pub(crate) struct ForcedMembers(Cell<bool>);

impl ForcedMembers {
    pub(crate) fn note(&self) {
        self.0.set(true);
    }

    /// The error of the whole repair, if one of its steps failed with `cause`.
    pub(crate) fn error(&self, cause: AdminError) -> AdminError {
        match cause {
            cause if !self.0.get() => cause,
            AdminError::NoCatalog | AdminError::CatalogNoQuorum { .. } => {
                AdminError::RepairBegun("the catalog has no leader yet".to_owned())
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

    /// Makes `survivor` the only voter of a group. `others` on live servers follow it; `others` on lost servers are
    /// removed from the group permanently.
    ///
    /// Fails before any change if other servers are disconnected now than the lost ones, or if the survivor refuses.
    /// Fails after the change if a replica that should follow knows the same members as the survivor and is connected
    /// to most of them.
    pub(crate) fn force_survivor(
        &self,
        group: GroupId,
        survivor: ReplicaConfig,
        others: &[ReplicaConfig],
        lost_servers: &LostServers,
        forced: &ForcedMembers,
    ) -> Result<(), AdminError> {
        self.lost.check(lost_servers, others)?;
        let name = display_names::group(&self.catalog.shown(), group);
        let refused = |server: ServerId, why: &str| {
            let server = self.name_of(server);
            AdminError::Refused(format!("{server} cannot become the only voter of {name}: {why}"))
        };
        let before = self.survivors.log_position_on(survivor.server, group);
        let before = before.ok_or_else(|| refused(survivor.server, "it does not report its log position"))?;
        let (lost, live): (Vec<ReplicaConfig>, Vec<ReplicaConfig>) =
            others.iter().partition(|replica| lost_servers.has(replica.server));
        let removed: Vec<PeerId> = lost.iter().map(|replica| replica.peer).collect();
        let members = Members { voters: vec![survivor.peer], removed, ..Members::default() };
        let members = self.reset(survivor.server, group, members, forced)?;
        let members = members.map_err(|why| refused(survivor.server, &why))?;
        let without: BTreeSet<ServerId> = lost.iter().map(|replica| replica.server).collect();
        tracing::warn!(
            "Emergency repair: {name} continues with the replica on {}, without {}",
            self.name_of(survivor.server),
            display_names::servers(&self.catalog.shown(), &without)
        );
        // A disconnected replica without a vote joins later, as does one that refuses because it has no usable log.
        let follows = |other: &&ReplicaConfig| {
            other.server != survivor.server && (other.voting || self.peers.is_connected(other.server))
        };
        for other in live.iter().filter(follows) {
            let why = match self.reset(other.server, group, members.clone(), forced) {
                Ok(Ok(_)) => continue,
                Ok(Err(why)) => why,
                Err(cause) if !other.voting => cause.to_string(),
                Err(cause) => return Err(cause),
            };
            let position = self.survivors.log_position_on(other.server, group);
            if position.is_some_and(|at| at.members.at >= before.members.at && at.members != members) {
                let other = self.name_of(other.server);
                return Err(AdminError::Refused(format!(
                    "{other} does not follow the survivor of {name}: {why}"
                )));
            }
            // A server without a replica, or with an old one, joins when the leader adds it as the catalog says.
            tracing::info!(
                "{} does not follow the survivor of {name} yet: {why}",
                self.name_of(other.server)
            );
        }
        Ok(())
    }

    /// Sets the members of a group on a server. The inner error is the reason for a refusal, for example that the
    /// server has no such replica.
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
        let failed = |why: &str| {
            AdminError::Refused(format!("{} did not set the members: {why}", self.name_of(server)))
        };
        let request = Request::ResetMembers { group, members: members.encode().into() };
        match self.peers.call(server, request.encode(), RESET_TIMEOUT) {
            Ok(bytes) => {
                forced.note();
                Members::decode(&bytes).map(Ok).ok_or_else(|| failed("its response is malformed"))
            }
            Err(RpcError::Refused { why, .. }) => {
                // A failing disk is reported as a refusal too, and may have stored the members all the same.
                let position = self.survivors.log_position_on(server, group);
                if position.is_none_or(|at| at.members.voters == members.voters) {
                    forced.note();
                }
                Ok(Err(why))
            }
            Err(error @ RpcError::NotConnected(_)) => Err(failed(&error.to_string())),
            Err(error @ RpcError::NoResponse(_)) => {
                // The server may have set the members all the same.
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

    /// Sets the members of a group on this server, at the request of `from`, which repairs the group.
    ///
    /// Refused unless the group lacks a quorum as seen from this server too: `from` may be cut off from the live
    /// servers. Also refused if the catalog does not know `from`, or knows it as removed.
    pub(crate) fn reset_members_here(
        &self,
        from: ServerId,
        group: GroupId,
        members: Members,
    ) -> Result<Members, String> {
        let catalog = self.catalog.shown();
        if catalog.server(from).is_none() || catalog.is_removed(from) {
            return Err(format!("server {from} does not belong to this cluster"));
        }
        self.may_be_reset(group, &members)?;
        self.log.reset_members(group, members).map_err(|error| error.to_string())
    }

    /// Fails with the reason if the members of a group must not become these, as far as this server knows.
    fn may_be_reset(&self, group: GroupId, members: &Members) -> Result<(), String> {
        let GroupStatus { own, members: present, .. } =
            self.log.group_status(group).map_err(|error| error.to_string())?;
        if self.catalog.is_proxy() && members.voters.contains(&own) {
            return Err("a proxy cannot be a voter".to_owned());
        }
        // An interrupted repair may be repeated.
        let is_set_already = present.voters == members.voters;
        if !is_set_already && self.catalog.is_quorum_connected(&present, &[]) {
            return Err("this server is connected to most voters of the group".to_owned());
        }
        Ok(())
    }
}
