//! Questions that write: one row, whose answer comes from whoever hears of its outcome, or many; and sync.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cluster::Responder;
use datum::{KeyRange, Object};
use reql::codec::Codec;
use reql::{Cancel, Env, SeededRandom};
use storage::TableId;

use super::Inner;
use crate::edit::{Target, adds_little};
use crate::failure::write_failed;
use crate::far::{Outcome, Rules, Site, WriteQuestion, pack_reports};
use crate::links::Errand;
use crate::read_mode::ReadMode;
use crate::table::{StoredTable, TableRef};
use crate::write::{Driver, Planned, WriteOptions, decision, has_moved, is_refused};

/// A write of one row that is brief is over before anybody could stop it.
static NEVER: Cancel = Cancel::new();

impl Inner {
    /// Whether it is about one row and soon decided, so that the thread that brought it can do it.
    pub(super) fn is_brief(&self, write: &WriteQuestion) -> bool {
        write.keys.len() == 1 && write.edits.at(0).is_brief() && {
            let catalog = self.service.node().catalog_guard();
            // One that is not known is soon refused.
            catalog.table_by_id(write.table).is_none_or(|table| adds_little(&table.config))
        }
    }

    /// A write of one row: proposed here, answered by whoever hears of its outcome.
    pub(super) fn write_one(&self, write: &WriteQuestion, reply: Responder) {
        let not_here = |leader| Outcome::<()>::Moved(leader).to_bytes(|(), _| ());
        let (table, Some(key)) = (self.table(write.table, ReadMode::Single), write.keys.first()) else {
            return reply(Ok(not_here(None)));
        };
        let Outcome::Done(table) = table else { return reply(Ok(not_here(None))) };
        if self.rules_of(&table).are_older_than(write.rules) {
            return reply(Ok(not_here(None)));
        }
        let shard = match self.service.leader(table.handle.shard(key)) {
            Some(Site::Near(shard)) => shard,
            Some(Site::Far(server)) => return reply(Ok(not_here(Some(server)))),
            None => return reply(Ok(not_here(None))),
        };
        let random = SeededRandom::new(write.around.seed);
        let env = Env {
            now: write.around.now,
            array_limit: write.around.array_limit,
            cancel: &NEVER,
            random: &random,
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
                            let done = Outcome::Done([Some(report)]);
                            done.write_to_bytes(|all, out| pack_reports(all, show, out))
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

    pub(super) fn write(&self, write: WriteQuestion, cancel: Arc<Cancel>) -> Bytes {
        let WriteQuestion { ticket: _, table, durability, ignore_hook, show, rules, around, keys, edits } =
            write;
        let cx = self.cx(around, cancel);
        let options = WriteOptions { durability, return_changes: show, ignore_hook };
        let reports = self.table(table, ReadMode::Single).and_then(|table| {
            if self.rules_of(&table).are_older_than(rules) {
                return Outcome::Moved(None);
            }
            let reports = Driver::new(&cx, TableRef::Stored(table), options).and_then(|mut driver| {
                let edit = |i: usize| edits.at(i);
                let planned = Planned { keys: &keys, edit: &edit, generated: &|_| false };
                let mut reports = driver.write_here(&planned)?;
                driver.finish_here(&mut reports)?;
                Ok(reports)
            });
            reports.into()
        });
        reports.write_to_bytes(|reports, out| pack_reports(reports, show, out))
    }

    /// As far as this node has heard.
    fn rules_of(&self, table: &StoredTable) -> Rules {
        Rules::of(&self.service.node().catalog_guard(), &table.handle.config)
    }

    pub(super) fn sync(&self, table: TableId, ranges: &[KeyRange]) -> Bytes {
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
        synced.to_bytes(Codec::pack)
    }
}
