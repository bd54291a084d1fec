//! The fast path: queries about one row by its primary key, recognised by their shape and answered
//! without a thread of their own. A read is answered at once, a write when its ticket says so.
//!
//! Whatever is not quite of the shape (or would be an error) goes the long way, which gives the
//! same answer.

mod far;
mod shape;
mod write;

use std::sync::atomic::Ordering;

use datum::{Datum, PrimaryKey};
use reql::wire::Query;
use reql::{EvalError, Op, Term};
use shard::ReadError;

pub use far::FarPoint;
pub use write::PointWrite;

use crate::access::{self, Need, Place};
use crate::failure::read_failed;
use crate::far::{Question, Site};
use crate::session::Session;
use crate::table::ReadMode;
use far::Again;
use shape::{Options, Row};

/// The answer of a query about one row.
pub enum PointAnswer {
    /// A read, answered.
    Read(Result<Datum, EvalError>),
    /// A read on its way to the node that has the row.
    FarRead(FarPoint),
    /// A write on its way.
    Write(PointWrite),
}

impl Session {
    /// Answers `query` if it is about one row by its primary key, or begins to. `None` means that
    /// it is not, or not simply: [`Session::run`] answers it then. Never blocks on the disk's
    /// writes; a read may wait for the disk to read.
    #[must_use]
    pub fn point(&self, query: &Query) -> Option<PointAnswer> {
        let Some(Term::Call(call)) = &query.term else { return None };
        let answer = match (call.op, call.args.as_slice()) {
            (Op::Get, _) => self.get(query)?,
            (Op::Insert | Op::Update | Op::Replace | Op::Delete, _) => {
                PointAnswer::Write(self.begin_write(query, call)?)
            }
            _ => return None,
        };
        self.service.counters().queries.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }

    fn get(&self, query: &Query) -> Option<PointAnswer> {
        let options = Options::of(query)?;
        let row = Row::of(query.term.as_ref()?)?;
        let key = PrimaryKey::encode(row.key).ok()?;
        let catalog = self.service.node().catalog_guard();
        let table = catalog.table(row.table.db.or(options.db).unwrap_or("test"), row.table.name)?;
        let place = Place::Table(table.db.id, table.config.id);
        access::check_user(&catalog, &self.client.user, Need::Read, place).ok()?;
        let mode = row.table.mode.or(options.mode).unwrap_or(ReadMode::Single);
        match self.service.reader(table.shard(&key), mode)? {
            // To confirm who leads may take a while.
            Site::Near(_) if mode == ReadMode::Majority => None,
            Site::Near(shard) => {
                self.service.counters().rows_read.fetch_add(1, Ordering::Relaxed);
                match shard.get(&key) {
                    Ok(row) => Some(PointAnswer::Read(Ok(row.map_or(Datum::Null, Datum::Object)))),
                    // The long way finds the row's new shard.
                    Err(ReadError::Elsewhere { .. }) => None,
                    Err(error) => Some(PointAnswer::Read(Err(read_failed(&error)))),
                }
            }
            Site::Far(server) => {
                let question = Question::Get { table: table.config.id, mode, keys: vec![key] };
                let again = Again::new(self, query);
                Some(PointAnswer::FarRead(FarPoint::ask(again, server, &question, None)))
            }
        }
    }
}
