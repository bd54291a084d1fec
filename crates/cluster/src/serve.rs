//! Questions of other servers: those about the cluster are answered here, those of queries are handed
//! on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use log::{GroupId, Members};

use crate::answer::{
    JoinResponse, StateResponse, encode_begun, encode_ends, encode_servers, encode_states, encode_terms,
};
use crate::catalog_row::CatalogRow;
use crate::change::SHOWN_PATIENCE;
use crate::copy_piece::encode_difference;
use crate::node::{CATALOG_GROUP, Core, Node};
use crate::post::{Event, Post};
use crate::request::{FOR_CLUSTER, FOR_QUERIES, Request};
use crate::servers::VOTERS_MAX;
use crate::{
    AdminError, OnResponse, OpenError, ReplicaConfig, Responder, RpcClient, RpcHandler, ServerConfig,
    ServerId,
};

/// Answers requests for a node, for as long as it lives.
pub struct RpcServer(Weak<Core>);

impl Node {
    /// Who answers the requests of other servers.
    #[must_use]
    pub fn desk(&self) -> RpcServer {
        RpcServer(Arc::downgrade(self.core()))
    }
}

impl Core {
    /// Sets who answers the requests of other servers' queries. Only the first one counts.
    pub fn answer_queries(&self, queries: Arc<dyn RpcHandler>) {
        drop(self.queries.set(queries));
    }

    /// Takes requests to the queries of other servers; `None` on a node that is alone.
    #[must_use]
    pub fn query_wire(&self) -> Option<Arc<dyn RpcClient>> {
        self.post.wire()?;
        Some(Arc::new(QueryWire(Arc::clone(&self.post))))
    }

    /// Lets a server into the catalog, or tells one that is in it already who it is. One that has gone
    /// before the change is made is not let in: it would be missed until somebody deletes its row.
    fn let_in(&self, object: &datum::Object) -> Result<JoinResponse, AdminError> {
        let row = CatalogRow::from_object(object).map_err(|error| AdminError::Refused(error.to_string()));
        let CatalogRow::Server(wanted) = row? else {
            return Err(AdminError::Refused("that is no server".to_owned()));
        };
        let fresh = self.new_peer();
        let own = self.change(|catalog, draft| {
            if catalog.is_removed(wanted.id) {
                return Err(AdminError::Refused(
                    "the server was removed from the cluster for good".to_owned(),
                ));
            }
            if let Some(known) = catalog.server(wanted.id) {
                return Ok(known.catalog.peer);
            }
            if !self.is_connected(wanted.id) {
                return Err(AdminError::Refused("the server has gone since it asked".to_owned()));
            }
            let voters = catalog.servers().iter().filter(|server| server.catalog.voting).count();
            let replica = ReplicaConfig {
                server: wanted.id,
                peer: fresh,
                voting: voters < VOTERS_MAX && !wanted.is_proxy,
            };
            draft.put(CatalogRow::Server(ServerConfig { catalog: replica, ..wanted.clone() }));
            Ok(fresh)
        })?;
        let places = self.catalog().servers().iter().map(|s| (s.catalog.peer, s.id)).collect();
        Ok(JoinResponse { own, places })
    }

    /// Whether the group is led from here, as far as the log has said. Who does not lead can say so at once:
    /// while nobody does, every server asks.
    fn may_lead(&self, group: GroupId) -> bool {
        self.post.known_leader(group) == Some(self.identity.server)
    }

    fn answer(&self, from: ServerId, request: Request) -> Result<Bytes, String> {
        match request {
            Request::Commit { base, rows } => Ok(self.commit_here(base, &rows).encode()),
            Request::Join { server } => {
                self.let_in(&server).map(|answer| answer.encode()).map_err(|error| error.to_string())
            }
            Request::States { groups } => Ok(encode_states(&self.states_here(&groups))),
            Request::HandOver { group, to } => {
                self.log.transfer(group, to);
                Ok(Bytes::new())
            }
            Request::End { group } => {
                let end = self.end_here(group).ok_or("no replica here has rows of the group")?;
                // Servers of before ask this where others ask for `Begun`.
                self.engine().flush().map_err(|error| error.to_string())?;
                Ok(end.encode())
            }
            Request::Ends { groups } => Ok(encode_ends(&self.ends_here(&groups))),
            Request::Begun { groups } => {
                let begun = self.begun_here(&groups).map_err(|error| error.to_string())?;
                Ok(encode_begun(&begun))
            }
            Request::Mark { group } => {
                let mark = self.shard_of(group).ok_or("the group is not here")?.seal_state();
                Ok(Bytes::copy_from_slice(&mark.number().to_le_bytes()))
            }
            Request::ResetMembers { group, members } => {
                let members = Members::decode(&members).ok_or("the members make no sense")?;
                Ok(self.reset_members_here(from, group, members)?.encode().into())
            }
            Request::Cuts { group, parts } => self.cuts_here(group, parts).map(|answer| answer.encode()),
            Request::SetMark { group, mark } => {
                if group == CATALOG_GROUP || mark > shard::SealState::NUMBER_MAX {
                    return Err(format!("group {group} gets no mark {mark}"));
                }
                Ok(self.set_mark_here(group, shard::SealState::of_number(mark))?.encode())
            }
            Request::Sees => Ok(encode_servers(&self.sees())),
            Request::Version => {
                let version = self.version_led_here().ok_or("this server does not lead the catalog")?;
                Ok(Bytes::copy_from_slice(&version.to_le_bytes()))
            }
            Request::CopyWanted { group, start } => {
                self.post.tell(Event::CopyOffered(group, start));
                Ok(Bytes::new())
            }
            Request::Stalled { cause } => Ok(self.heard_of_stall(from, cause)),
            Request::Terms { groups } => Ok(encode_terms(&self.post.terms(&groups))),
            Request::Shows { version } => {
                self.await_version(version, SHOWN_PATIENCE);
                Ok(Bytes::new())
            }
            Request::CopyBegin { group } => self.give_copy(group).map(|answer| answer.encode()),
            Request::CopyNext { copy, after, copy_ranges } => {
                self.give_rows(copy, after.as_ref(), &copy_ranges).map(|piece| encode_difference(&piece))
            }
        }
    }
}

impl RpcHandler for RpcServer {
    fn serve(&self, from: ServerId, mut request: Bytes, reply: Responder) {
        let Some(core) = self.0.upgrade() else { return };
        let first = if request.is_empty() { None } else { Some(request.split_to(1)[0]) };
        match first {
            Some(FOR_QUERIES) => match core.queries.get() {
                Some(queries) => queries.serve(from, request, reply),
                None => reply(Err("this server does not answer queries yet".to_owned())),
            },
            Some(FOR_CLUSTER) => match Request::decode(request) {
                Some(Request::States { groups }) if !groups.iter().any(|group| core.may_lead(*group)) => {
                    let leader = |group: &GroupId| StateResponse::Elsewhere(core.post.known_leader(*group));
                    reply(Ok(encode_states(&groups.iter().map(leader).collect::<Vec<_>>())));
                }
                // The disk must not keep this waiting.
                Some(request @ (Request::Stalled { .. } | Request::Terms { .. })) => {
                    reply(core.answer(from, request))
                }
                Some(request) if request.needs_the_log() && core.takes_no_turn() => {
                    reply(Err("the log of this server does not get on".to_owned()));
                }
                Some(request) => answer_aside(core, from, request, reply),
                None => reply(Err("the request makes no sense".to_owned())),
            },
            _ => reply(Err("the request is for nobody here".to_owned())),
        }
    }

    fn gone(&self, server: ServerId) {
        let Some(core) = self.0.upgrade() else { return };
        core.queries.get().iter().for_each(|queries| queries.gone(server));
    }
}

/// Answers on a thread of its own: these requests are rare, and wait for the disk.
fn answer_aside(core: Arc<Core>, from: ServerId, request: Request, reply: Responder) {
    let work = move || reply(core.answer(from, request));
    if let Err(error) = io::task::spawn("cluster", work) {
        tracing::error!("no thread to answer a server: {error}");
    }
}

/// Marks requests as those of queries.
struct QueryWire(Arc<Post>);

impl RpcClient for QueryWire {
    fn ask(&self, server: ServerId, request: Bytes, patience: Duration, answered: OnResponse) {
        match self.0.wire() {
            Some(wire) => wire.ask(server, marked(&request), patience, answered),
            None => answered(Err(crate::RpcError::NotConnected(server))),
        }
    }

    fn call_buffered(&self, server: ServerId, request: Bytes, patience: Duration, answered: OnResponse) {
        match self.0.wire() {
            Some(wire) => wire.call_buffered(server, marked(&request), patience, answered),
            None => answered(Err(crate::RpcError::NotConnected(server))),
        }
    }

    fn turn(&self) {
        self.0.wire().into_iter().for_each(|wire| wire.turn());
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.0.wire().is_some_and(|wire| wire.is_connected(server))
    }
}

fn marked(request: &[u8]) -> Bytes {
    let mut marked = BytesMut::with_capacity(1 + request.len());
    marked.put_u8(FOR_QUERIES);
    marked.put_slice(request);
    marked.freeze()
}

/// The row with which a new server asks to be let in.
pub(crate) fn join_question(server: ServerConfig) -> Bytes {
    Request::Join { server: CatalogRow::Server(server).to_object() }.encode()
}

/// What the answer to that says.
pub(crate) fn join_answer(bytes: Bytes) -> Result<JoinResponse, OpenError> {
    JoinResponse::decode(bytes).ok_or_else(|| OpenError::Join("the answer makes no sense".to_owned()))
}
