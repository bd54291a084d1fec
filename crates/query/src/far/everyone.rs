//! Asking all nodes at once, for system tables that are about each of them.

use std::sync::Arc;
use std::time::Duration;

use cluster::ServerId;
use datum::{KeyRange, Object, Text};
use reql::EvalError;
use reql::codec::Codec;
use uuid::Uuid;

use super::answer::read;
use super::question::Question;
use crate::context::Cx;
use crate::links::{Slot, Trouble};
use crate::table::Identifiers;

/// How long a node may take to say what it has. All are asked at the same time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server and its rows; `None` if it is connected and did not answer in time.
pub(crate) type Told = (ServerId, Option<Vec<Object>>);

/// Other nodes that were asked for the rows of a system table.
pub(crate) struct AskedOthers(Vec<(ServerId, Arc<Slot>)>);

impl AskedOthers {
    /// Asks for the rows of system table `table` that other nodes know.
    pub fn ask(cx: &Cx, table: &str, identifiers: Identifiers) -> AskedOthers {
        let question = Question::System { table: Text::from(table), identifiers, user: cx.asker.name() };
        let question = question.to_bytes();
        let ask = |server| (server, cx.service.links().ask(server, question.clone(), PATIENCE));
        AskedOthers(others(cx).into_iter().map(ask).collect())
    }

    /// Waits for the rows, each node's apart.
    pub fn told(self, cx: &Cx) -> Result<Vec<Told>, EvalError> {
        let links = cx.service.links();
        let mut rows = Vec::with_capacity(self.0.len());
        for (server, slot) in self.0 {
            match slot.wait(&cx.cancel).and_then(|bytes| read(bytes, Vec::<Object>::unpack)) {
                Ok(told) => rows.push((server, Some(told))),
                Err(Trouble::NoAnswer) if links.is_connected(server) => rows.push((server, None)),
                Err(Trouble::Eval(error) | Trouble::Unasked(error)) => return Err(error),
                Err(Trouble::NoAnswer | Trouble::NotConnected | Trouble::Moved(_)) => {}
            }
        }
        Ok(rows)
    }
}

/// Has every other node stop the query `id`, if it runs it.
pub(crate) fn stop_elsewhere(cx: &Cx, id: Uuid) {
    let question = Question::StopJob { id }.to_bytes();
    others(cx).into_iter().for_each(|server| cx.service.links().tell(server, question.clone()));
}

/// The other servers that can be asked now.
fn others(cx: &Cx) -> Vec<ServerId> {
    let (links, own) = (cx.service.links(), cx.node().identity().server);
    let catalog = cx.catalog();
    let known = catalog.servers().into_iter().map(|server| server.id).filter(|server| *server != own);
    let others = links.elsewhere(&KeyRange::all()).into_iter().chain(known);
    others.filter(|server| links.is_connected(*server)).collect()
}
