//! Answers the questions of other nodes, with the code that serves this node's own queries.
//!
//! What takes no more than a look at a row, or a write of one, is done on the thread that brought
//! the question; everything else on threads of its own. Whether the user may ask was checked where
//! the query came in.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cluster::{Reply, Serve, ServerId};
use datum::{Datum, KeyRange, Object, PrimaryKey, Text};
use parking_lot::Mutex;
use reql::travel::Travel;
use reql::{Cancel, Env, EvalError, Flow, Pipeline, SeededChance, Transform};
use shard::{IndexPlace, ReadError, Shard};
use storage::TableId;

use crate::context::{Cx, Surroundings};
use crate::cursors::Pull;
use crate::edit::Target;
use crate::failure::{read_failed, write_failed};
use crate::far::{BatchEnd, FarBatch, Fitness, Outcome, Part, Question, Site, WriteQuestion, pack_reports};
use crate::gather::Local;
use crate::links::Errand;
use crate::order::{IndexRead, KeyOrder, Placed, PlacedItems};
use crate::service::Service;
use crate::stream::{IndexPart, Indexed, RowPart, Rows, names_few};
use crate::system;
use crate::table::{Identifiers, ReadMode, StoredTable, TableRef};
use crate::write::{Driver, Planned, WriteOptions, decision, has_moved, is_refused};

/// A longer question is read on a thread of its own.
const INLINE_BYTES: usize = 32 << 10;
/// More keys are looked up on a thread of their own.
const INLINE_KEYS: usize = 16;
/// Bytes of the first batch of a cursor; each later one may be four times as long.
const BATCH_BYTES_MIN: usize = 16 << 10;
/// Most bytes of a batch, roughly. What one row becomes stays together.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// What a row that no item is made of counts in a batch.
const ROW_BYTES: usize = 64;

/// A write of one row is over before anybody could stop it.
static NEVER: Cancel = Cancel::new();

/// Answers what other nodes ask. Made for one service, given to the links.
#[derive(Clone)]
pub struct QuestionDesk(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    /// What is being answered and can be stopped.
    running: Mutex<HashMap<(ServerId, u64), Arc<Cancel>>>,
}

impl QuestionDesk {
    /// Answers with the tables of `service`.
    #[must_use]
    pub fn new(service: Arc<Service>) -> QuestionDesk {
        QuestionDesk(Arc::new(Inner { service, running: Mutex::default() }))
    }
}

impl Serve for QuestionDesk {
    fn serve(&self, from: ServerId, question: Bytes, reply: Reply) {
        let inner = self.0.clone();
        if question.len() > INLINE_BYTES {
            self.0.service.carriers.run(move || inner.read(from, question, reply));
        } else {
            inner.read(from, question, reply);
        }
    }

    /// Stops what runs for `server` and ends its cursors.
    fn gone(&self, server: ServerId) {
        let running = self.0.running.lock();
        running.iter().filter(|((owner, _), _)| *owner == server).for_each(|(_, cancel)| cancel.set());
        drop(running);
        self.0.service.cursors.forget(server);
    }
}

impl Inner {
    fn read(self: Arc<Self>, from: ServerId, question: Bytes, reply: Reply) {
        match Question::from_bytes(question) {
            Ok(question) => self.answer(from, question, reply),
            Err(garbled) => reply(Err(garbled.to_string())),
        }
    }

    fn answer(self: Arc<Self>, from: ServerId, question: Question, reply: Reply) {
        match question {
            // To confirm who leads may take a while.
            Question::Get { table, mode, keys }
                if keys.len() <= INLINE_KEYS && mode != ReadMode::Majority =>
            {
                reply(Ok(self.get(table, mode, &keys)));
            }
            Question::Write(write) if write.keys.len() == 1 => self.write_one(&write, reply),
            Question::Close { cursor } => {
                self.stop((from, cursor));
                self.service.cursors.take((from, cursor));
                reply(Ok(done()));
            }
            Question::Cancel { ticket } => {
                self.stop((from, ticket));
                reply(Ok(done()));
            }
            Question::StopJob { id } => {
                self.service.jobs.stop(id);
                reply(Ok(done()));
            }
            long => {
                let inner = self.clone();
                self.service.carriers.run(move || reply(Ok(inner.answer_long(from, long))));
            }
        }
    }

    fn answer_long(&self, from: ServerId, question: Question) -> Bytes {
        match question {
            Question::Get { table, mode, keys } => self.get(table, mode, &keys),
            Question::Write(write) => self.write(write),
            Question::Count { ticket, part } => self.stoppable((from, ticket), |cancel| {
                let cx = self.cx(Surroundings::none(), cancel);
                let count = match &part.index {
                    Some(index) => self
                        .by_index(&cx, &part, index)
                        .and_then(|parts| <IndexPart as Local>::count(&cx, parts).into()),
                    None => self.rows(&part).and_then(|parts| RowPart::count(&cx, parts).into()),
                };
                count.to_bytes(Travel::pack)
            }),
            Question::Few { ticket, part } => self.stoppable((from, ticket), |_| self.few(&part)),
            Question::Gather { ticket, part, around, pipeline } => {
                self.stoppable((from, ticket), |cancel| self.gather(&part, around, pipeline, cancel))
            }
            Question::Open { cursor, part, around, steps } => self.open((from, cursor), &part, around, steps),
            Question::Next { cursor } => self.next((from, cursor)),
            Question::Sync { table, ranges } => self.sync(table, &ranges),
            Question::System { table, identifiers, user } => self.system(&table, identifiers, user),
            Question::Close { .. } | Question::Cancel { .. } | Question::StopJob { .. } => done(),
        }
    }

    fn cx(&self, around: Surroundings, cancel: Arc<Cancel>) -> Arc<Cx> {
        Cx::served(self.service.clone(), Text::from_static("admin"), around, cancel)
    }

    /// The table of this id; it is elsewhere as long as this node has not heard of it.
    fn table(&self, table: TableId, mode: ReadMode) -> Outcome<StoredTable> {
        match self.service.node().catalog_guard().table_by_id(table) {
            Some(handle) => Outcome::Done(StoredTable { handle: handle.clone(), read_mode: mode }),
            None => Outcome::Moved(None),
        }
    }

    /// What is here of a part, all of it or nothing, as `make` makes it.
    fn parts<P>(
        &self,
        part: &Part,
        make: impl Fn(&StoredTable, &Shard, KeyRange) -> Result<P, EvalError>,
    ) -> Outcome<Vec<P>> {
        self.table(part.table, part.mode).and_then(|table| {
            let mut parts = Vec::new();
            let mut fitness = Fitness::new(part.mode);
            for (shard, range) in part.ranges.iter().flat_map(|range| table.handle.covering(range)) {
                match self.service.reader(shard, part.mode) {
                    // An index is read by whole shards: whoever asked knows other ones.
                    Some(Site::Near(shard)) if !fitness.allows(shard) => return Outcome::Moved(None),
                    Some(Site::Near(shard)) if part.index.is_some() && range != *shard.range() => {
                        return Outcome::Moved(None);
                    }
                    Some(Site::Near(shard)) => match make(&table, shard, range) {
                        Ok(part) => parts.push(part),
                        Err(error) => return Outcome::Failed(error),
                    },
                    Some(Site::Far(server)) => return Outcome::Moved(Some(server)),
                    None => return Outcome::Moved(None),
                }
            }
            if part.order == KeyOrder::Descending {
                parts.reverse();
            }
            Outcome::Done(parts)
        })
    }

    fn rows(&self, part: &Part) -> Outcome<Vec<RowPart>> {
        self.parts(part, |_, shard, range| RowPart::of(shard, range).map_err(|error| read_failed(&error)))
    }

    fn by_index(&self, cx: &Cx, part: &Part, index: &IndexRead) -> Outcome<Vec<IndexPart>> {
        self.parts(part, |table, shard, _| IndexPart::of(cx, table, shard, index, part.order))
    }

    fn get(&self, table: TableId, mode: ReadMode, keys: &[PrimaryKey]) -> Bytes {
        let rows = self.table(table, mode).and_then(|table| {
            let mut rows = Vec::with_capacity(keys.len());
            let mut fitness = Fitness::new(mode);
            for key in keys {
                let found = match self.service.reader(table.handle.shard(key), mode) {
                    Some(Site::Near(shard)) if !fitness.allows(shard) => return Outcome::Moved(None),
                    Some(Site::Near(shard)) => shard.get(key),
                    Some(Site::Far(server)) => return Outcome::Moved(Some(server)),
                    None => return Outcome::Moved(None),
                };
                match found {
                    Ok(row) => rows.push(row.map_or(Datum::Null, Datum::Object)),
                    Err(ReadError::Elsewhere { .. }) => return Outcome::Moved(None),
                    Err(error) => return Outcome::Failed(read_failed(&error)),
                }
            }
            Outcome::Done(rows)
        });
        self.service.counters().rows_read.fetch_add(keys.len() as u64, Ordering::Relaxed);
        rows.to_bytes(Travel::pack)
    }

    /// A write of one row: proposed here, answered by whoever hears of its outcome.
    fn write_one(&self, write: &WriteQuestion, reply: Reply) {
        let not_here = |leader| Outcome::<()>::Moved(leader).to_bytes(|(), _| ());
        let (table, Some(key)) = (self.table(write.table, ReadMode::Single), write.keys.first()) else {
            return reply(Ok(not_here(None)));
        };
        let Outcome::Done(table) = table else { return reply(Ok(not_here(None))) };
        let shard = match self.service.leader(table.handle.shard(key)) {
            Some(Site::Near(shard)) => shard,
            Some(Site::Far(server)) => return reply(Ok(not_here(Some(server)))),
            None => return reply(Ok(not_here(None))),
        };
        let chance = SeededChance::new(write.around.seed);
        let env = Env {
            now: write.around.now,
            array_limit: write.around.array_limit,
            cancel: &NEVER,
            chance: &chance,
            globals: &write.around.globals,
            open: None,
        };
        let config = &table.handle.config;
        let hook = config.write_hook.as_ref().filter(|_| !write.ignore_hook);
        let target = Target { field: &config.primary_key, key, hook };
        let decide = |old: Option<&Object>| {
            let report = write.edits.at(0).decide(target, old, &env);
            (decision(&report), report)
        };
        let failed = |error| Outcome::<()>::Failed(write_failed(&error)).to_bytes(|(), _| ());
        match shard.write(key, write.durability.unwrap_or(config.durability), decide) {
            Ok((report, ticket)) => {
                self.service.counters().rows_written.fetch_add(1, Ordering::Relaxed);
                let show = write.show;
                Errand::start(ticket, move |outcome| {
                    reply(Ok(match outcome {
                        Ok(_) => {
                            Outcome::Done([Some(report)]).to_bytes(|all, out| pack_reports(all, show, out))
                        }
                        // Nothing was written: whoever leads now is asked.
                        Err(error) if is_refused(&error) => not_here(None),
                        Err(error) => failed(error),
                    }));
                });
            }
            Err(error) if has_moved(&error) => reply(Ok(not_here(None))),
            Err(error) => reply(Ok(failed(error))),
        }
    }

    fn write(&self, write: WriteQuestion) -> Bytes {
        let WriteQuestion { table, durability, ignore_hook, show, around, keys, edits } = write;
        let cx = self.cx(around, Arc::default());
        let options = WriteOptions { durability, return_changes: show, ignore_hook };
        let reports = self.table(table, ReadMode::Single).and_then(|table| {
            let reports = Driver::new(&cx, TableRef::Stored(table), options).and_then(|mut driver| {
                let edit = |i: usize| edits.at(i);
                let planned = Planned { keys: &keys, edit: &edit, generated: &|_| false };
                let mut reports = driver.write_here(&planned)?;
                driver.finish_here(&mut reports)?;
                Ok(reports)
            });
            reports.into()
        });
        reports.to_bytes(|reports, out| pack_reports(reports, show, out))
    }

    fn gather(&self, part: &Part, around: Surroundings, pipeline: Pipeline, cancel: Arc<Cancel>) -> Bytes {
        let cx = self.cx(around, cancel);
        let work = Arc::new(pipeline);
        let tally = match &part.index {
            Some(index) => self
                .by_index(&cx, part, index)
                .and_then(|parts| IndexPart::tally(&cx, parts, part.order, &work).into()),
            None => self.rows(part).and_then(|parts| RowPart::tally(&cx, parts, part.order, &work).into()),
        };
        tally.to_bytes(|tally, out| {
            tally.pack(out);
            out.count(cx.take_looked_at());
        })
    }

    /// Whether the index of a part names few of its rows, in every shard.
    fn few(&self, part: &Part) -> Bytes {
        let Some(query) = part.index.as_ref().and_then(|index| index.values()) else {
            return Outcome::Done(false).to_bytes(Travel::pack);
        };
        let few = self.parts(part, |_, shard, _| Ok(names_few(shard, &query)));
        few.and_then(|few| Outcome::Done(few.iter().all(|few| *few))).to_bytes(Travel::pack)
    }

    fn open(&self, key: (ServerId, u64), part: &Part, around: Surroundings, steps: Vec<Transform>) -> Bytes {
        let cx = self.cx(around, Arc::default());
        let rows = match &part.index {
            Some(index) => self.by_index(&cx, part, index).and_then(|parts| {
                let heads = parts.into_iter().map(|part| Box::new(part) as Box<dyn PlacedItems>);
                Outcome::Done(ServedRows::Index(Indexed::new(heads.collect(), part.order)))
            }),
            None => self.rows(part).and_then(|parts| {
                let rows = Rows::new(&cx, parts, part.order.direction());
                Outcome::Done(ServedRows::Primary(Box::new(rows)))
            }),
        };
        match rows {
            Outcome::Done(rows) => {
                let placed = part.index.is_some() && part.order != KeyOrder::Any;
                let cursor =
                    ServedCursor { cx, rows, placed, steps, batch_bytes: BATCH_BYTES_MIN, ended: false };
                self.pull(key, Box::new(cursor))
            }
            Outcome::Failed(error) => Outcome::<()>::Failed(error).to_bytes(|(), _| ()),
            Outcome::Moved(leader) => Outcome::<()>::Moved(leader).to_bytes(|(), _| ()),
        }
    }

    fn next(&self, key: (ServerId, u64)) -> Bytes {
        match self.service.cursors.take(key) {
            Some(cursor) => self.pull(key, cursor),
            None => Outcome::<()>::Moved(None).to_bytes(|(), _| ()),
        }
    }

    /// Reads a batch, and keeps the cursor unless it is over or was closed meanwhile.
    fn pull(&self, key: (ServerId, u64), mut cursor: Box<dyn Pull>) -> Bytes {
        self.stoppable_by(key, cursor.cancel(), || {
            let batch = cursor.next_batch();
            let cancel = cursor.cancel();
            if !cursor.is_over() {
                self.service.cursors.keep(key, cursor, self.service.node().clock().now());
                if cancel.is_set() {
                    self.service.cursors.take(key);
                }
            }
            batch
        })
    }

    fn sync(&self, table: TableId, ranges: &[KeyRange]) -> Bytes {
        let synced = self.table(table, ReadMode::Single).and_then(|table| {
            let mut tickets = Vec::new();
            for (shard, _) in ranges.iter().flat_map(|range| table.handle.covering(range)) {
                match self.service.leader(shard) {
                    Some(Site::Near(shard)) => tickets.push(shard.sync()),
                    Some(Site::Far(server)) => return Outcome::Moved(Some(server)),
                    None => return Outcome::Moved(None),
                }
            }
            let wait = |ticket: shard::WriteTicket| ticket.wait().map_err(|error| write_failed(&error));
            tickets.into_iter().try_for_each(|ticket| wait(ticket).map(drop)).map(|()| true).into()
        });
        synced.to_bytes(Travel::pack)
    }

    fn system(&self, table: &str, identifiers: Identifiers, user: Text) -> Bytes {
        let cx = Cx::served(self.service.clone(), user, Surroundings::none(), Arc::default());
        let rows = match system::table(table) {
            Some(table) => table.rows(&cx, identifiers),
            None => Err(EvalError::internal(format!("there is no system table {table}"))),
        };
        Outcome::from(rows).to_bytes(Travel::pack)
    }

    fn stop(&self, key: (ServerId, u64)) {
        if let Some(cancel) = self.running.lock().get(&key) {
            cancel.set();
        }
    }

    fn stoppable(&self, key: (ServerId, u64), work: impl FnOnce(Arc<Cancel>) -> Bytes) -> Bytes {
        let cancel = Arc::new(Cancel::new());
        self.stoppable_by(key, cancel.clone(), || work(cancel))
    }

    /// Does `work` while `cancel` can be set under this number. What was stopped halfway is lost, not
    /// failed: whoever still wants it, because only the link was gone, looks for it anew.
    fn stoppable_by(&self, key: (ServerId, u64), cancel: Arc<Cancel>, work: impl FnOnce() -> Bytes) -> Bytes {
        self.running.lock().insert(key, cancel.clone());
        let answer = work();
        self.running.lock().remove(&key);
        if cancel.is_set() { Outcome::<()>::Moved(None).to_bytes(|(), _| ()) } else { answer }
    }
}

/// That something was done which has no result.
fn done() -> Bytes {
    Outcome::Done(true).to_bytes(Travel::pack)
}

/// Rows being read for another node.
struct ServedCursor {
    cx: Arc<Cx>,
    rows: ServedRows,
    /// Whether it matters where an item stands in the order of its index.
    placed: bool,
    steps: Vec<Transform>,
    batch_bytes: usize,
    ended: bool,
}

enum ServedRows {
    Primary(Box<Rows>),
    Index(Indexed),
}

impl ServedRows {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<(Datum, u64, Option<IndexPlace>)>, EvalError> {
        match self {
            ServedRows::Primary(rows) => Ok(rows.next_row()?.map(|row| (row, 1, None))),
            ServedRows::Index(rows) => {
                let row = rows.next_placed(env)?;
                Ok(row.map(|Placed { place, item, times }| (item, times, Some(place))))
            }
        }
    }
}

impl ServedCursor {
    fn fill(&mut self, items: &mut Vec<Datum>, places: &mut Vec<IndexPlace>) -> Result<BatchEnd, EvalError> {
        let env = self.cx.closed_env();
        let mut bytes = 0;
        while bytes < self.batch_bytes {
            env.check_cancel()?;
            let Some((row, times, place)) = self.rows.next(&env)? else { return Ok(BatchEnd::Done) };
            bytes += ROW_BYTES;
            for _ in 0..times {
                reql::run(&self.steps, row.clone(), &env, &mut |item| {
                    bytes += item.json_size();
                    items.push(item);
                    places.extend(place.clone().filter(|_| self.placed));
                    Ok(Flow::Continue)
                })?;
            }
        }
        Ok(BatchEnd::More)
    }
}

impl Pull for ServedCursor {
    fn next_batch(&mut self) -> Bytes {
        let (mut items, mut places) = (Vec::new(), Vec::new());
        let end = self.fill(&mut items, &mut places).unwrap_or_else(BatchEnd::Failed);
        self.batch_bytes = (self.batch_bytes * 4).min(BATCH_BYTES_MAX);
        self.ended = !matches!(end, BatchEnd::More);
        let position = match &self.rows {
            ServedRows::Primary(rows) => rows.position(),
            ServedRows::Index(_) => None,
        };
        let looked_at = self.cx.take_looked_at();
        Outcome::Done(FarBatch { items, places, position, looked_at, end }).to_bytes(Travel::pack)
    }

    fn is_over(&self) -> bool {
        self.ended
    }

    fn cancel(&self) -> Arc<Cancel> {
        self.cx.cancel.clone()
    }
}
