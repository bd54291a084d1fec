//! Changes of the catalog, from any node: worked out on the version shown here and committed by the leader of group zero
//! if nothing changed in between, else worked out again.

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

/// How long a change looks for the leader of the catalog, and how long one attempt may take there.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait between two attempts of a change.
const CHANGE_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long a change that is refused on the version shown here waits for a later version.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a change that is made waits for other servers to show it.
pub(crate) const OTHER_SERVERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Why one attempt to commit did not succeed.
enum Attempt {
    /// The catalog has changed meanwhile.
    Stale,
    /// The one that was asked does not lead, or is not there; nothing happened.
    NotLeader,
    /// Anything else.
    Failed(AdminError),
}

impl CatalogClient {
    /// Changes the catalog: `edit` works out the rows on the present one, maybe several times, and
    /// what it returns at last is returned once the change is durable and this node shows it. Fails, among
    /// other reasons, where a table would get replicas on servers that are not in the catalog.
    pub(crate) fn change<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let _one_at_a_time = self.lock_changes();
        self.change_locked(edit)
    }

    /// As [`CatalogClient::change`], for whoever holds `changing`.
    pub(crate) fn change_locked<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        self.change_within(CHANGE_TIMEOUT, edit)
    }

    /// As [`CatalogClient::change`], for what somebody asks for: what `edit` refuses, or finds to be so already, is worked out
    /// again on everything that the catalog holds. Another server may have changed it just before. And what is changed
    /// is shown by the servers that are connected, too, when this returns: whoever was told so may ask any of them.
    pub(crate) fn administer<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let before = self.shown().version;
        let held = self.lock_changes();
        let outcome = self.administer_locked(edit);
        drop(held);
        self.await_other_servers(before);
        outcome
    }

    /// Returns once the servers that are connected show the catalog that this one shows, or did not for as long as
    /// [`OTHER_SERVERS_TIMEOUT`]; at once if the version is still `before`.
    pub(crate) fn await_other_servers(&self, before: u64) {
        let version = self.shown().version;
        if version == before {
            return;
        }
        let shows = Request::AwaitVersion { version }.encode();
        let requests = self.connected_servers().into_iter().map(|server| (server, shows.clone())).collect();
        // Who does not answer is hung or cut off, and learns of it when it is not.
        self.peers.call_all(requests, OTHER_SERVERS_TIMEOUT);
    }

    /// As [`CatalogClient::administer`], for whoever holds `changing`.
    pub(crate) fn administer_locked<T>(
        &self,
        mut edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let mut is_refused = false;
        let outcome = self.change_locked(|catalog, draft| {
            let answer = edit(catalog, draft);
            let is_strange = draft.ineligible_server(catalog, self.own).is_some();
            is_refused = answer.is_err() || draft.is_empty() || is_strange;
            answer
        });
        if is_refused && self.catch_up(CATCH_UP_TIMEOUT) { self.change_locked(edit) } else { outcome }
    }

    /// As [`CatalogClient::change`]; the leader of the catalog is looked for, and then waited for, for no longer than `timeout`.
    pub(crate) fn change_within<T>(
        &self,
        timeout: Duration,
        mut edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let deadline = task::now() + timeout;
        loop {
            let catalog = self.shown();
            let mut draft = Draft::of(&catalog);
            let answer = edit(&catalog, &mut draft)?;
            if draft.is_empty() {
                return Ok(answer);
            }
            if let Some(server) = draft.ineligible_server(&catalog, self.own) {
                return Err(AdminError::ServerMissing(server));
            }
            match self.commit(catalog.version, &draft.into_rows()?, timeout) {
                // A log that does not get on shows nothing new.
                Ok(()) if self.leadership.log_is_stalled() => return Ok(answer),
                Err(Attempt::Stale) if self.leadership.log_is_stalled() => return Err(AdminError::Outdated),
                Ok(()) => {
                    self.await_version(catalog.version + 1, timeout);
                    return Ok(answer);
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
        let lead = self.leadership.known_leader(CATALOG_GROUP);
        let known = || lead.leader().filter(|leader| *leader != self.own);
        let leader = if lead.is_from_local_log() { known() } else { self.find_leader() };
        let Some(leader) = leader else { return Err(Attempt::NotLeader) };
        let request = Request::Commit { base, rows: rows.to_vec() }.encode();
        match self.peers.call(leader, request, timeout) {
            Ok(answer) => match CommitResponse::decode(&answer) {
                Some(CommitResponse::Done) => Ok(()),
                Some(CommitResponse::Stale) => Err(Attempt::Stale),
                Some(CommitResponse::NotLeader) => Err(Attempt::NotLeader),
                Some(CommitResponse::Refused(why)) => Err(Attempt::Failed(AdminError::Refused(why))),
                Some(CommitResponse::InDoubt(why)) => Err(Attempt::Failed(AdminError::InDoubt(why))),
                None => Err(Attempt::Failed(AdminError::InDoubt("the answer makes no sense".to_owned()))),
            },
            Err(RpcError::NoAnswer(_)) => Err(Attempt::Failed(AdminError::InDoubt(
                "the leader of the catalog did not answer".to_owned(),
            ))),
            Err(RpcError::NotConnected(_) | RpcError::Refused { .. }) => Err(Attempt::NotLeader),
        }
    }

    /// Writes rows of the catalog, as its leader, if its version is still `base`. Waits for the disk. Refuses
    /// rows that it could not read, whoever sends them.
    pub(crate) fn commit_here(&self, base: u64, rows: &[(PrimaryKey, Option<Object>)]) -> CommitResponse {
        let unreadable =
            rows.iter().filter_map(|(_, row)| CatalogRow::from_object(row.as_ref()?).err()).next();
        if let Some(error) = unreadable {
            return CommitResponse::Refused(error.to_string());
        }
        let version = CatalogRow::Version(base + 1);
        let keys: Vec<PrimaryKey> =
            std::iter::once(version.key()).chain(rows.iter().map(|(key, _)| key.clone())).collect();
        let mut fits = false;
        let decide = |at: usize, old: Option<&Object>| {
            if at == 0 {
                let present = old.map_or(Some(0), |row| match CatalogRow::from_object(row) {
                    Ok(CatalogRow::Version(present)) => Some(present),
                    _ => None,
                });
                fits = present == Some(base);
            }
            let decision = match at.checked_sub(1) {
                _ if !fits => Decision::Unchanged,
                None => Decision::Put(version.to_object()),
                Some(at) => rows[at].1.clone().map_or(Decision::Delete, Decision::Put),
            };
            (decision, ())
        };
        let written = self.shard.write_many(&keys, Durability::Hard, decide);
        match written.and_then(|(_, ticket)| ticket.wait()) {
            Ok(_) if fits => CommitResponse::Done,
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
