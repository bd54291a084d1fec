//! Changes of the catalog, from any node. A change is computed on the version shown here, and the leader of group zero
//! commits it if that is still the current version. Otherwise the change is computed again on a later version. Decision
//! 0009.

use std::time::Duration;

use datum::{Object, PrimaryKey};
use io::task;
use log::{Durability, Interruption, Refusal};
use shard::{Decision, WriteError, WriteRefusal};

use super::client::CatalogClient;
use super::draft::Draft;
use super::row::CatalogRow;
use super::snapshot::Catalog;
use crate::config::CATALOG_GROUP;
use crate::error::AdminError;
use crate::rpc::response::CommitResponse;
use crate::rpc::{Request, RpcError};

/// How long a change looks for the leader of the catalog, and how long the leader may take for one attempt.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait between two attempts of a change.
const CHANGE_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long a change that is refused on the version shown here waits for the latest version.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a committed change waits until other servers show it.
pub(crate) const OTHER_SERVERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Why one attempt to commit did not succeed.
enum Attempt {
    /// The catalog has a later version. Nothing was changed.
    Stale,
    /// The requested server does not lead, or could not be reached. Nothing was changed.
    NotLeader,
    /// Any other error; retrying does not help.
    Failed(AdminError),
}

impl CatalogClient {
    /// Changes the catalog. `edit` adds the changed rows to the draft; it may be called several times, each time with a
    /// later version. Returns the result of its last call, once the change is durable and this node shows it. Fails,
    /// among other reasons, if a table would get replicas on servers that are not in the catalog.
    pub(crate) fn change<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let _one_at_a_time = self.lock_changes();
        self.change_locked(edit)
    }

    /// As [`CatalogClient::change`], for a caller that holds [`CatalogClient::lock_changes`].
    pub(crate) fn change_locked<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        self.change_within(CHANGE_TIMEOUT, edit)
    }

    /// As [`CatalogClient::change`], for a change that a user requests. If `edit` fails or has nothing to change, it is
    /// called again on the latest version of the catalog, because another server may have changed it just before. When
    /// this returns, the connected servers show the change too, because the user may send the next query to any of
    /// them.
    pub(crate) fn administer<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let before = self.shown().version;
        let one_at_a_time = self.lock_changes();
        let outcome = self.administer_locked(edit);
        drop(one_at_a_time);
        self.await_other_servers(before);
        outcome
    }

    /// Returns once the connected servers show the version that this one shows, or after [`OTHER_SERVERS_TIMEOUT`]. Returns
    /// at once if the version is still `before`.
    pub(crate) fn await_other_servers(&self, before: u64) {
        let version = self.shown().version;
        if version == before {
            return;
        }
        let request = Request::AwaitVersion { version }.encode();
        let requests = self.connected_servers().into_iter().map(|server| (server, request.clone())).collect();
        // A server that does not respond hangs or is partitioned, and catches up when it recovers.
        self.peers.call_all(requests, OTHER_SERVERS_TIMEOUT);
    }

    /// As [`CatalogClient::administer`], for a caller that holds [`CatalogClient::lock_changes`]; does not wait for
    /// other servers.
    pub(crate) fn administer_locked<T>(
        &self,
        mut edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let mut is_refused = false;
        let outcome = self.change_locked(|catalog, draft| {
            let result = edit(catalog, draft);
            let is_ineligible = draft.ineligible_server(catalog, self.own).is_some();
            is_refused = result.is_err() || draft.is_empty() || is_ineligible;
            result
        });
        if is_refused && self.catch_up(CATCH_UP_TIMEOUT) { self.change_locked(edit) } else { outcome }
    }

    /// As [`CatalogClient::change`], with `timeout` for the lookup of the catalog's leader and for its response.
    pub(crate) fn change_within<T>(
        &self,
        timeout: Duration,
        mut edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let deadline = task::now() + timeout;
        loop {
            let catalog = self.shown();
            let mut draft = Draft::of(&catalog);
            let result = edit(&catalog, &mut draft)?;
            if draft.is_empty() {
                return Ok(result);
            }
            if let Some(server) = draft.ineligible_server(&catalog, self.own) {
                return Err(AdminError::ServerMissing(server));
            }
            match self.commit(catalog.version, &draft.into_rows()?, timeout) {
                // A stalled log applies nothing, so this node cannot show the new version.
                Ok(()) if self.leadership.log_is_stalled() => return Ok(result),
                Err(Attempt::Stale) if self.leadership.log_is_stalled() => return Err(AdminError::Outdated),
                Ok(()) => {
                    self.await_version(catalog.version + 1, timeout);
                    return Ok(result);
                }
                Err(Attempt::Failed(error)) => return Err(error),
                Err(_) if task::now() > deadline => return Err(self.no_leader_error()),
                Err(Attempt::Stale) => drop(self.await_version(catalog.version + 1, CHANGE_RETRY_INTERVAL)),
                Err(Attempt::NotLeader) => task::sleep(CHANGE_RETRY_INTERVAL),
            }
        }
    }

    fn commit(
        &self,
        base: u64,
        rows: &[(PrimaryKey, Option<Object>)],
        timeout: Duration,
    ) -> Result<(), Attempt> {
        if self.shard.is_leader() {
            return match self.commit_here(base, rows) {
                CommitResponse::Done => Ok(()),
                CommitResponse::Stale => Err(Attempt::Stale),
                CommitResponse::NotLeader => Err(Attempt::NotLeader),
                CommitResponse::Refused(why) => Err(Attempt::Failed(AdminError::Refused(why))),
                CommitResponse::InDoubt(why) => Err(Attempt::Failed(AdminError::InDoubt(why))),
            };
        }
        let known_leader = self.leadership.known_leader(CATALOG_GROUP);
        let remote = || known_leader.leader().filter(|leader| *leader != self.own);
        let leader = if known_leader.is_from_local_log() { remote() } else { self.find_leader() };
        let Some(leader) = leader else { return Err(Attempt::NotLeader) };
        let request = Request::Commit { base, rows: rows.to_vec() }.encode();
        match self.peers.call(leader, request, timeout) {
            Ok(response) => match CommitResponse::decode(&response) {
                Some(CommitResponse::Done) => Ok(()),
                Some(CommitResponse::Stale) => Err(Attempt::Stale),
                Some(CommitResponse::NotLeader) => Err(Attempt::NotLeader),
                Some(CommitResponse::Refused(why)) => Err(Attempt::Failed(AdminError::Refused(why))),
                Some(CommitResponse::InDoubt(why)) => Err(Attempt::Failed(AdminError::InDoubt(why))),
                None => {
                    Err(Attempt::Failed(AdminError::InDoubt("the response cannot be decoded".to_owned())))
                }
            },
            Err(RpcError::NoResponse(_)) => Err(Attempt::Failed(AdminError::InDoubt(
                "the leader of the catalog did not respond".to_owned(),
            ))),
            Err(RpcError::NotConnected(_) | RpcError::Refused { .. }) => Err(Attempt::NotLeader),
        }
    }

    /// Writes rows of the catalog, as its leader, if its version is still `base`. Waits until they are durable. Refuses
    /// rows that it could not read, also from other servers.
    pub(crate) fn commit_here(&self, base: u64, rows: &[(PrimaryKey, Option<Object>)]) -> CommitResponse {
        let unreadable =
            rows.iter().filter_map(|(_, row)| CatalogRow::from_object(row.as_ref()?).err()).next();
        if let Some(error) = unreadable {
            return CommitResponse::Refused(error.to_string());
        }
        let version = CatalogRow::Version(base + 1);
        let keys: Vec<PrimaryKey> =
            std::iter::once(version.key()).chain(rows.iter().map(|(key, _)| key.clone())).collect();
        let mut is_current = false;
        let decide = |at: usize, old: Option<&Object>| {
            if at == 0 {
                let version = old.map_or(Some(0), |row| match CatalogRow::from_object(row) {
                    Ok(CatalogRow::Version(version)) => Some(version),
                    _ => None,
                });
                is_current = version == Some(base);
            }
            let decision = match at.checked_sub(1) {
                _ if !is_current => Decision::Unchanged,
                None => Decision::Put(version.to_object()),
                Some(at) => rows[at].1.clone().map_or(Decision::Delete, Decision::Put),
            };
            (decision, ())
        };
        let written = self.shard.write_many(&keys, Durability::Hard, decide);
        match written.and_then(|(_, ticket)| ticket.wait()) {
            Ok(_) if is_current => CommitResponse::Done,
            Ok(_) => CommitResponse::Stale,
            Err(WriteError::Definite { cause: WriteRefusal::Log(Refusal::NotLeader { .. }) }) => {
                CommitResponse::NotLeader
            }
            Err(WriteError::Definite { cause: WriteRefusal::Dependency }) => CommitResponse::Stale,
            Err(WriteError::Definite { cause }) => CommitResponse::Refused(cause.to_string()),
            Err(WriteError::Indeterminate { cause: Interruption::Disk(why) | Interruption::Apply(why) }) => {
                CommitResponse::InDoubt(why)
            }
            Err(WriteError::Indeterminate { cause }) => CommitResponse::InDoubt(cause.to_string()),
        }
    }
}
