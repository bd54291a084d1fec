//! One table's feed: opened before the table is read, read without a pause, and opened again when it ends.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use client::answer::PARTIAL;

use super::budget::ByteBudget;
use super::elements::elements;
use crate::error::MigrateError;
use crate::gate::Change;
use crate::queries;
use crate::server::{Connection, Server, Stop, failure, is_timeout};
use crate::table::Table;

/// A feed without a change for this long is asked for a sign of life.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// Between two looks whether the feed is to end. All feeds end within this time, so that few changes can come in between.
const LOOK: Duration = Duration::from_millis(250);
/// A server that gives none for this long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The last look at a feed takes no longer.
const REST_MAX: Duration = Duration::from_secs(15);
/// Between attempts to open a feed.
const BACKOFF: Duration = Duration::from_millis(200);
/// Feeds that end so soon and so often are cut by something between.
const CUT_AFTER: Duration = Duration::from_secs(180);
const CUTS_MAX: u32 = 5;

/// Changes on their way to the writer.
pub(super) struct Parcel {
    pub(super) changes: Vec<Change>,
    pub(super) bytes: u64,
}

/// The reader of a table's feed.
pub(super) struct Feed<'a> {
    pub(super) table: &'a Table,
    pub(super) source: &'a Server,
    pub(super) stop: &'a Stop,
    /// Requested when the feed ends and the writers go on.
    pub(super) ends: &'a Stop,
    pub(super) budget: &'a ByteBudget,
    pub(super) parcels: SyncSender<Parcel>,
}

impl Feed<'_> {
    /// Follows until the end is requested or the source has dropped the table. Fails if the feed cannot be opened for a reason that does not pass, or for as long as the
    /// source's patience.
    pub(super) fn run(&self) -> Result<(), MigrateError> {
        let (mut cuts, mut away_since) = (0, Instant::now());
        while !self.is_over() && !self.table.gate().is_dropped() {
            let opened = Instant::now();
            let error = match self.follow() {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if error.is_dropped_at_source() {
                self.table.drop_at_source();
                return Ok(());
            }
            let was_open = self.table.gate().is_feed_open();
            self.table.gate().feed_ended();
            if self.is_over() {
                return Ok(());
            }
            if was_open {
                away_since = Instant::now();
                cuts = if opened.elapsed() < CUT_AFTER { cuts + 1 } else { 1 };
                self.report(&error, cuts);
            }
            if !error.is_temporary() || away_since.elapsed() > self.source.patience {
                return Err(error);
            }
            self.stop.pause(BACKOFF);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stop.is_requested() || self.ends.is_requested()
    }

    fn report(&self, error: &MigrateError, cuts: u32) {
        let name = &self.table.facts.name;
        eprintln!("{name}: the feed ended ({error}); it is opened again, and what was copied is compared");
        if cuts == CUTS_MAX {
            eprintln!(
                "{name}: the feed ended {cuts} times, each within three minutes: if a proxy between closes quiet or long \
                 connections, connect to the server itself"
            );
        }
    }

    /// Opens the feed and reads it. Returns when the end is requested; fails when the feed ends.
    fn follow(&self) -> Result<(), MigrateError> {
        let mut connection = self.source.connect()?;
        connection.set_timeout(Some(LOOK))?;
        let term = queries::changes(&self.table.facts.name);
        let sent = connection.session().send(&queries::start(&term, "{}"));
        let token = sent.map_err(|source| connection.lost(source))?;
        let (mut heard, mut asked_at) = (Instant::now(), Instant::now());
        while !self.is_over() {
            let response = match connection.session().receive() {
                Ok(response) => response,
                Err(error) if is_timeout(error.kind()) => {
                    if heard.elapsed() > SILENCE_MAX {
                        return Err(connection.lost(error));
                    }
                    if heard.max(asked_at).elapsed() > QUIET_MAX {
                        // Answered at once by a server that lives.
                        let asked = connection.session().send(b"[1,1,{}]");
                        asked.map_err(|source| connection.lost(source))?;
                        asked_at = Instant::now();
                    }
                    continue;
                }
                Err(error) => return Err(connection.lost(error)),
            };
            heard = Instant::now();
            if response.token == token {
                self.receive(&mut connection, token, &response.body)?;
            }
        }
        match self.stop.is_requested() {
            true => Ok(()),
            false => self.receive_rest(&mut connection, token),
        }
    }

    /// Takes the changes that the source has sent before it answers another query. Fails when the feed ends, or without an answer.
    fn receive_rest(&self, connection: &mut Connection, token: u64) -> Result<(), MigrateError> {
        connection.set_timeout(Some(REST_MAX))?;
        let asked = connection.session().send(b"[1,1,{}]");
        let asked = asked.map_err(|source| connection.lost(source))?;
        loop {
            let response = connection.session().receive().map_err(|source| connection.lost(source))?;
            if response.token == token {
                self.receive(connection, token, &response.body)?;
            } else if response.token == asked {
                return Ok(());
            }
        }
    }

    fn receive(&self, connection: &mut Connection, token: u64, body: &[u8]) -> Result<(), MigrateError> {
        let what = format!("the feed of {}", self.table.facts.name);
        let answer = connection.parsed(&what, body)?;
        if answer.t == PARTIAL {
            let sent = connection.session().send_continue(token);
            sent.map_err(|source| connection.lost(source))?;
        }
        let found = elements(&answer.r, &self.table.facts.primary_key)
            .map_err(|error| failure(connection.side(), &what, error.to_string()))?;
        if found.is_ready {
            self.table.gate().feed_opened();
            self.table.notify();
        }
        if let Some(skipped) = found.skipped {
            eprintln!("{}: {skipped} What was copied is compared.", self.table.facts.name);
            self.table.gate().feed_skipped();
        }
        self.hand_over(found.changes, found.bytes);
        match answer.t {
            PARTIAL => Ok(()),
            _ => Err(connection.lost(std::io::Error::other("the feed ended"))),
        }
    }

    fn hand_over(&self, changes: Vec<Change>, bytes: u64) {
        if changes.is_empty() {
            return;
        }
        self.table.note_change();
        self.budget.take(bytes, self.stop);
        self.table.gate().received(changes.len() as u64);
        // Fails only when the writer has ended, which ends this thread too.
        drop(self.parcels.send(Parcel { changes, bytes }));
    }
}
