//! Requests to all nodes at once, for system tables with rows about each node.

use std::sync::Arc;
use std::time::Duration;

use cluster::ServerId;
use datum::{KeyRange, Object, Text};
use reql::EvalError;
use reql::codec::Codec;
use uuid::Uuid;

use super::request::Request;
use super::response::read;
use crate::context::Cx;
use crate::routing::{RemoteError, ResponseSlot};
use crate::table::Identifiers;

/// How long a node may take to respond. All nodes are asked at the same time.
const SYSTEM_ROWS_TIMEOUT: Duration = Duration::from_secs(1);

/// A server and its rows; `None` if it is connected and did not respond in time.
pub(crate) type ServerRows = (ServerId, Option<Vec<Object>>);

/// Pending requests to other nodes for the rows of a system table.
pub(crate) struct SystemRowRequests(Vec<(ServerId, Arc<ResponseSlot>)>);

impl SystemRowRequests {
    /// Requests the rows of system table `table` from all other nodes.
    pub fn send(cx: &Cx, table: &str, identifiers: Identifiers) -> SystemRowRequests {
        let request = Request::System { table: Text::from(table), identifiers, user: cx.caller.name() };
        let request = request.to_bytes();
        let send =
            |server| (server, cx.service.remote_calls().call(server, request.clone(), SYSTEM_ROWS_TIMEOUT));
        SystemRowRequests(others(cx).into_iter().map(send).collect())
    }

    /// Waits for the rows of each node.
    pub fn wait(self, cx: &Cx) -> Result<Vec<ServerRows>, EvalError> {
        let remote_calls = cx.service.remote_calls();
        let mut rows = Vec::with_capacity(self.0.len());
        for (server, slot) in self.0 {
            match slot.wait(&cx.cancel).and_then(|bytes| read(bytes, Vec::<Object>::unpack)) {
                Ok(rows_of_server) => rows.push((server, Some(rows_of_server))),
                Err(RemoteError::NoResponse) if remote_calls.is_connected(server) => {
                    rows.push((server, None))
                }
                Err(RemoteError::Eval(error) | RemoteError::NotSent(error)) => return Err(error),
                Err(RemoteError::NoResponse | RemoteError::NotConnected | RemoteError::NotHere(_)) => {}
            }
        }
        Ok(rows)
    }
}

/// Asks every other node to stop the query `id`, if it runs there.
pub(crate) fn stop_job_on_others(cx: &Cx, id: Uuid) {
    let request = Request::StopJob { id }.to_bytes();
    others(cx).into_iter().for_each(|server| cx.service.remote_calls().notify(server, request.clone()));
}

/// The other servers that are connected now.
fn others(cx: &Cx) -> Vec<ServerId> {
    let (remote_calls, own) = (cx.service.remote_calls(), cx.node().identity().server);
    let catalog = cx.catalog();
    let known = catalog.servers().into_iter().map(|server| server.id).filter(|server| *server != own);
    let others = remote_calls.forced_target(&KeyRange::all()).into_iter().chain(known);
    others.filter(|server| remote_calls.is_connected(*server)).collect()
}
