//! The fast path: queries about one row by its primary key, recognised by their shape and answered
//! without a thread of their own. A read is answered at once, a write when its ticket says so.
//!
//! Whatever is not quite of the shape (or would be an error) goes the long way, which gives the
//! same answer.

mod shape;
mod write;

use std::sync::atomic::Ordering;

use datum::{Datum, PrimaryKey};
use reql::wire::Query;
use reql::{EvalError, Op, Term};

pub use write::PointWrite;

use crate::access::{self, Need, Place};
use crate::failure::read_failed;
use crate::session::Session;
use shape::{Options, Row};

/// The answer of a query about one row.
pub enum PointAnswer {
    /// A read, answered.
    Read(Result<Datum, EvalError>),
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
        self.service.counters().rows_read.fetch_add(1, Ordering::Relaxed);
        let found = table.shard(&key).get(&key);
        Some(PointAnswer::Read(match found {
            Ok(row) => Ok(row.map_or(Datum::Null, Datum::Object)),
            Err(error) => Err(read_failed(&error)),
        }))
    }
}
