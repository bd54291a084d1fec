//! Changes of the catalog, from any node: worked out on the own copy, carried out by the leader of
//! group zero if nothing changed in between, else worked out again.

use std::time::Duration;

use bytes::Bytes;
use datum::{Object, PrimaryKey};
use io::task;
use log::{Durability, GroupId, Interruption, Refusal};
use shard::{Decision, WriteError, WriteRefusal};

use crate::answer::CommitResponse;
use crate::catalog_row::CatalogRow;
use crate::node::Core;
use crate::request::Request;
use crate::{AdminError, Catalog, RpcError, ServerId};

/// How long a change looks for the leader of the catalog, and how long one attempt may take there.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// How long what the own copy of the catalog refuses waits for news of it.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How long a change that is made waits for other servers to show it.
pub(crate) const SHOWN_PATIENCE: Duration = Duration::from_secs(1);

/// Rows of the catalog that are to be written together.
pub(crate) struct Draft {
    put: Vec<CatalogRow>,
    delete: Vec<PrimaryKey>,
    group_next: u64,
    group_first: u64,
}

impl Draft {
    pub(crate) fn of(catalog: &Catalog) -> Draft {
        let group_next = catalog.group_next;
        Draft { put: Vec::new(), delete: Vec::new(), group_next, group_first: group_next }
    }

    /// Adds a row. What a table keeps of its shards before is settled first: every change of its replicas
    /// comes by here. So does every vote on the catalog, which a proxy has none of.
    pub(crate) fn put(&mut self, mut row: CatalogRow) {
        match &mut row {
            CatalogRow::Table(table) => table.settle(),
            CatalogRow::Server(server) => server.catalog.voting &= !server.is_proxy,
            _ => {}
        }
        self.put.push(row);
    }

    pub(crate) fn delete(&mut self, key: PrimaryKey) {
        self.delete.push(key);
    }

    /// A group number that was never used.
    pub(crate) fn new_group(&mut self) -> GroupId {
        self.group_next += 1;
        GroupId(self.group_next - 1)
    }

    /// The rows as they are stored. Fails if one would not be read as what it is: no node could read the
    /// catalog any more, nor change what is wrong with it.
    fn into_rows(mut self) -> Result<Vec<(PrimaryKey, Option<Object>)>, AdminError> {
        if self.group_next != self.group_first {
            self.put.push(CatalogRow::Groups(self.group_next));
        }
        let puts = self.put.iter().map(|row| Ok((row.key(), Some(readable(row)?))));
        puts.chain(self.delete.into_iter().map(|key| Ok((key, None)))).collect()
    }

    /// A server that is to get a replica and is none of those that hold any: a proxy, or one other than `own` that was
    /// removed since whoever asks for that has looked.
    fn stranger(&self, catalog: &Catalog, own: ServerId) -> Option<ServerId> {
        let tables = self.put.iter().filter_map(|row| match row {
            CatalogRow::Table(table) => Some(table),
            _ => None,
        });
        tables.into_iter().find_map(|table| {
            let before = catalog.table_by_id(table.id).map(|handle| &handle.config);
            let had = |server| {
                before.is_some_and(|old| old.shards.iter().any(|shard| shard.replica_on(server).is_some()))
            };
            let replicas = table.shards.iter().flat_map(|shard| shard.replicas.iter().chain(&shard.leaving));
            let mut named = replicas.map(|replica| replica.server);
            let is_stranger = |server: &ServerId| match catalog.server(*server) {
                Some(known) => known.is_proxy,
                None => *server != own,
            };
            named.find(|server| is_stranger(server) && !had(*server))
        })
    }

    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.delete.is_empty()
    }
}

/// A row as it is stored, if that is read as the same row.
fn readable(row: &CatalogRow) -> Result<Object, AdminError> {
    let object = row.to_object();
    match CatalogRow::from_object(&object) {
        Ok(read) if read == *row => Ok(object),
        Ok(_) => {
            let key = row.key().decode().to_json_string();
            Err(AdminError::Refused(format!("catalog row {key} would not be read as what it is")))
        }
        Err(error) => Err(AdminError::Refused(error.to_string())),
    }
}

/// Why one attempt to commit did not succeed.
enum Attempt {
    /// The catalog has changed meanwhile.
    Stale,
    /// The one that was asked does not lead, or is not there; nothing happened.
    Elsewhere,
    /// Anything else.
    Failed(AdminError),
}

impl Core {
    /// Changes the catalog: `edit` works out the rows on the present one, maybe several times, and
    /// what it returns at last is returned once the change is durable and this node shows it. Fails, among
    /// other reasons, where a table would get replicas on servers that are not in the catalog.
    pub(crate) fn change<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let _one_at_a_time = task::lock(&self.changing);
        self.change_held(edit)
    }

    /// As [`Core::change`], for whoever holds `changing`.
    pub(crate) fn change_held<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        self.change_within(PATIENCE, edit)
    }

    /// As [`Core::change`], for what somebody asks for: what `edit` refuses, or finds to be so already, is worked out
    /// again on everything that the catalog holds. Another server may have changed it just before. And what is changed
    /// is shown by the servers that are connected, too, when this returns: whoever was told so may ask any of them.
    pub(crate) fn administer<T>(
        &self,
        edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let before = self.catalog().version;
        let held = task::lock(&self.changing);
        let outcome = self.administer_held(edit);
        drop(held);
        self.await_others(before);
        outcome
    }

    /// Returns once the servers that are connected show the catalog that this one shows, or did not for as long as
    /// [`SHOWN_PATIENCE`]; at once if the version is still `before`.
    pub(crate) fn await_others(&self, before: u64) {
        let version = self.catalog().version;
        if version == before {
            return;
        }
        let shows = Request::Shows { version }.encode();
        let requests = self.sees().into_iter().map(|server| (server, shows.clone())).collect();
        // Who does not answer is hung or cut off, and learns of it when it is not.
        self.ask_all(requests, SHOWN_PATIENCE);
    }

    /// As [`Core::administer`], for whoever holds `changing`.
    pub(crate) fn administer_held<T>(
        &self,
        mut edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let mut is_refused = false;
        let outcome = self.change_held(|catalog, draft| {
            let answer = edit(catalog, draft);
            let is_strange = draft.stranger(catalog, self.identity.server).is_some();
            is_refused = answer.is_err() || draft.is_empty() || is_strange;
            answer
        });
        if is_refused && self.catch_up(CATCH_UP) { self.change_held(edit) } else { outcome }
    }

    /// As [`Core::change`]; the leader of the catalog is looked for, and then waited for, for no longer than `patience`.
    pub(crate) fn change_within<T>(
        &self,
        patience: Duration,
        mut edit: impl FnMut(&Catalog, &mut Draft) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let deadline = task::now() + patience;
        loop {
            let catalog = self.catalog();
            let mut draft = Draft::of(&catalog);
            let answer = edit(&catalog, &mut draft)?;
            if draft.is_empty() {
                return Ok(answer);
            }
            if let Some(server) = draft.stranger(&catalog, self.identity.server) {
                return Err(AdminError::ServerMissing(server));
            }
            match self.commit(catalog.version, &draft.into_rows()?, patience) {
                // A log that does not get on shows nothing new.
                Ok(()) if self.post.is_deaf() => return Ok(answer),
                Err(Attempt::Stale) if self.post.is_deaf() => return Err(AdminError::Outdated),
                Ok(()) => {
                    self.await_version(catalog.version + 1, patience);
                    return Ok(answer);
                }
                Err(Attempt::Failed(error)) => return Err(error),
                Err(_) if task::now() > deadline => return Err(self.no_catalog()),
                Err(Attempt::Stale) => drop(self.await_version(catalog.version + 1, PAUSE)),
                Err(Attempt::Elsewhere) => task::sleep(PAUSE),
            }
        }
    }

    fn commit(
        &self,
        base: u64,
        rows: &[(PrimaryKey, Option<Object>)],
        patience: Duration,
    ) -> Result<(), Attempt> {
        if self.catalog_shard.is_leader() {
            return match self.commit_here(base, rows) {
                CommitResponse::Done => Ok(()),
                CommitResponse::Stale => Err(Attempt::Stale),
                CommitResponse::NotLeader => Err(Attempt::Elsewhere),
                CommitResponse::Refused(why) => Err(Attempt::Failed(AdminError::Refused(why))),
                CommitResponse::Doubt(why) => Err(Attempt::Failed(AdminError::InDoubt(why))),
            };
        }
        let lead = self.post.lead(crate::node::CATALOG_GROUP);
        let known = || lead.leader().filter(|leader| *leader != self.identity.server);
        let leader = if lead.is_heard() { known() } else { self.find_catalog_leader() };
        let Some(leader) = leader else { return Err(Attempt::Elsewhere) };
        let request = Request::Commit { base, rows: rows.to_vec() }.encode();
        match self.ask(leader, request, patience) {
            Ok(answer) => match CommitResponse::decode(&answer) {
                Some(CommitResponse::Done) => Ok(()),
                Some(CommitResponse::Stale) => Err(Attempt::Stale),
                Some(CommitResponse::NotLeader) => Err(Attempt::Elsewhere),
                Some(CommitResponse::Refused(why)) => Err(Attempt::Failed(AdminError::Refused(why))),
                Some(CommitResponse::Doubt(why)) => Err(Attempt::Failed(AdminError::InDoubt(why))),
                None => Err(Attempt::Failed(AdminError::InDoubt("the answer makes no sense".to_owned()))),
            },
            Err(RpcError::NoAnswer(_)) => Err(Attempt::Failed(AdminError::InDoubt(
                "the leader of the catalog did not answer".to_owned(),
            ))),
            Err(RpcError::NotConnected(_) | RpcError::Refused { .. }) => Err(Attempt::Elsewhere),
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
        let written = self.catalog_shard.write_many(&keys, Durability::Hard, decide);
        match written.and_then(|(_, ticket)| ticket.wait()) {
            Ok(_) if fits => CommitResponse::Done,
            Ok(_) => CommitResponse::Stale,
            Err(WriteError::Definite { cause: WriteRefusal::Log(Refusal::NotLeader { .. }) }) => {
                CommitResponse::NotLeader
            }
            Err(WriteError::Definite { cause: WriteRefusal::Dependency }) => CommitResponse::Stale,
            Err(WriteError::Definite { cause }) => CommitResponse::Refused(cause.to_string()),
            Err(WriteError::Indeterminate { cause: Interruption::Disk(why) | Interruption::Apply(why) }) => {
                CommitResponse::Doubt(why)
            }
            Err(WriteError::Indeterminate { cause }) => CommitResponse::Doubt(cause.to_string()),
        }
    }

    /// Asks another server and waits for the answer.
    pub(crate) fn ask(
        &self,
        server: ServerId,
        request: Bytes,
        patience: Duration,
    ) -> Result<Bytes, RpcError> {
        let Some(wire) = self.post.wire() else { return Err(RpcError::NotConnected(server)) };
        let (sender, receiver) = task::channel();
        let answered = Box::new(move |answer| drop(sender.send(answer)));
        wire.ask(server, request, patience, answered);
        receiver.recv().unwrap_or(Err(RpcError::NoAnswer(server)))
    }

    /// Asks other servers, all at the same time, and waits for the answers, in the order of the requests; none of
    /// who does not answer within `patience`.
    pub(crate) fn ask_all(&self, requests: Vec<(ServerId, Bytes)>, patience: Duration) -> Vec<Option<Bytes>> {
        let mut answers = vec![None; requests.len()];
        let Some(wire) = self.post.wire() else { return answers };
        let (sender, receiver) = task::channel();
        for (nth, (server, request)) in requests.into_iter().enumerate() {
            let sender = sender.clone();
            // Whoever asked waits until every sender is gone.
            let answered = Box::new(move |answer| drop(sender.send((nth, answer))));
            wire.ask(server, request, patience, answered);
        }
        drop(sender);
        while let Ok((nth, answer)) = receiver.recv() {
            let answer: Result<Bytes, RpcError> = answer;
            answers[nth] = answer.ok();
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{shard, table};

    fn rows_of(row: CatalogRow) -> Result<Vec<(PrimaryKey, Option<Object>)>, AdminError> {
        let mut draft = Draft::of(&Catalog::default());
        draft.put(row);
        draft.into_rows()
    }

    #[test]
    fn a_row_that_could_not_be_read_is_not_proposed() {
        assert!(rows_of(CatalogRow::Heartbeat(10)).is_ok());
        assert!(rows_of(CatalogRow::Table(table(vec![shard(3, b"", &[1, 2])]))).is_ok());
        for row in [
            CatalogRow::Heartbeat(1 << 53),
            CatalogRow::Groups(u64::MAX),
            CatalogRow::Table(table(Vec::new())),
        ] {
            let refused = rows_of(row).unwrap_err().to_string();
            assert!(refused.starts_with("the catalog could not be written: catalog row"), "{refused}");
        }
    }
}
