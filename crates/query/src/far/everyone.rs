//! Asking all nodes at once, for system tables that are about each of them.

use cluster::ServerId;
use datum::{Object, Text};
use reql::EvalError;
use reql::travel::Travel;
use uuid::Uuid;

use super::answer::read;
use super::gather::unless_lost;
use super::question::Question;
use crate::context::Cx;
use crate::links::SHORT;
use crate::table::Identifiers;

/// The rows of system table `table` that other nodes know, each node's apart. A node that does not
/// answer has none.
pub(crate) fn other_rows(
    cx: &Cx,
    table: &str,
    identifiers: Identifiers,
) -> Result<Vec<Vec<Object>>, EvalError> {
    let question = Question::System { table: Text::from(table), identifiers, user: cx.asker.name() };
    let question = question.to_bytes();
    let ask = |server| cx.service.links().ask(server, question.clone(), SHORT);
    let asked: Vec<_> = others(cx).into_iter().map(ask).collect();
    let mut rows = Vec::with_capacity(asked.len());
    for slot in asked {
        let answer = slot.wait(&cx.cancel).and_then(|bytes| read(bytes, Vec::<Object>::unpack));
        rows.extend(unless_lost(answer)?);
    }
    Ok(rows)
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
    let others = links.elsewhere().into_iter().chain(known);
    others.filter(|server| links.is_connected(*server)).collect()
}
