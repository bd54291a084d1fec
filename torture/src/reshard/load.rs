//! The writers and readers. Each uses one node until a request there fails.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::tally::Tally;
use crate::harness::client::Client;
use crate::workload::layout::TABLE;
use crate::workload::ledger::{WriterDocuments, document_key, filler};
use crate::workload::writers::{WriteResponse, write_one};

/// A request without a response for this long has failed.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause of a reader between two reads, so that the writers get processor time.
const READ_PAUSE: Duration = Duration::from_millis(5);
/// The number of values that the read-only rows have in the index; each value is as frequent as the others, or has one
/// row more.
pub(super) const GROUPS: usize = 7;
/// Before each request, a client reconnects to a random node with a chance of one in this.
const RECONNECT_ONE_IN: u32 = 500;

/// The state shared by the clients.
pub(super) struct Load<'a> {
    drivers: Vec<SocketAddr>,
    tally: &'a Tally,
    /// The writer number in the keys of the read-only rows, and the number of these rows.
    read_only: usize,
    rows: usize,
    /// Set to end the clients.
    pub(super) over: AtomicBool,
}

impl<'a> Load<'a> {
    pub(super) fn new(drivers: Vec<SocketAddr>, tally: &'a Tally, read_only: usize, rows: usize) -> Load<'a> {
        Load { drivers, tally, read_only, rows, over: AtomicBool::new(false) }
    }

    /// Runs one writer until the end.
    pub(super) fn write(&self, writer: usize, documents: &mut WriterDocuments, mut random: StdRng) {
        self.through_any(&mut random, |client, random| {
            let (began, change) = (Instant::now(), self.tally.change());
            let (number, response) = write_one(writer, documents, client, random);
            self.tally.wrote(change, began.elapsed());
            match response {
                Ok(WriteResponse::Acknowledged) => Ok(()),
                Ok(WriteResponse::Otherwise(answer)) => {
                    // The write may still take effect, even after later ones: no later write may depend on it.
                    documents.documents[number].retired = true;
                    self.tally.failed("write", &answer);
                    Ok(())
                }
                Err(error) => {
                    documents.documents[number].retired = true;
                    Err(error)
                }
            }
        });
    }

    /// Runs one reader until the end.
    pub(super) fn read(&self, mut random: StdRng) {
        self.through_any(&mut random, |client, random| {
            let answer = match random.random_range(0..20) {
                0 => self.count(client),
                1 => self.scan(client, "scan", &self.rows_term(), self.rows),
                2 => self.count_group(client, random),
                3 => self.scan_group(client, random),
                4..6 => self.get(client, random, "outdated"),
                6..10 => self.get(client, random, "majority"),
                _ => self.get(client, random, "single"),
            };
            self.tally.read();
            thread::sleep(READ_PAUSE);
            answer
        });
    }

    /// Repeats `one`, with a new connection after a failure and sometimes without one.
    fn through_any(&self, random: &mut StdRng, mut one: impl FnMut(&mut Client, &mut StdRng) -> Result<()>) {
        while !self.over.load(Ordering::Acquire) {
            let nth = random.random_range(0..self.drivers.len());
            let Ok(mut client) = Client::connect_for(self.drivers[nth], RESPONSE_TIMEOUT) else {
                self.tally.unanswered("connecting");
                continue;
            };
            while !self.over.load(Ordering::Acquire) && !random.random_ratio(1, RECONNECT_ONE_IN) {
                if let Err(error) = one(&mut client, random) {
                    self.tally.unanswered(&format!("{error:#}"));
                    break;
                }
            }
        }
    }

    /// Reads a read-only row.
    fn get(&self, client: &mut Client, random: &mut StdRng, mode: &str) -> Result<()> {
        let key = document_key(self.read_only, random.random_range(0..self.rows));
        let table = format!("[15,[[14,[\"test\"]],\"crash\"],{{\"read_mode\":\"{mode}\"}}]");
        let answer = client.ask(&format!("[1,[16,[{table},\"{key}\"]]]"))?;
        if answer["t"] != 1 {
            self.tally.failed(&format!("get, {mode}"), &answer);
        } else if answer["r"][0]["filler"] != filler(&key, 1) {
            self.tally.wrong(&format!("get, {mode}"), &format!("{key} is {}", answer["r"][0]));
        }
        Ok(())
    }

    /// Counts the read-only rows.
    fn count(&self, client: &mut Client) -> Result<()> {
        self.check_count(client, "count", &self.rows_term(), self.rows)
    }

    /// Counts the read-only rows with one value in the index.
    fn count_group(&self, client: &mut Client, random: &mut StdRng) -> Result<()> {
        let (group, rows) = self.group(random);
        self.check_count(client, "count by an index", &group, rows)
    }

    fn check_count(&self, client: &mut Client, what: &str, rows: &str, expected: usize) -> Result<()> {
        let answer = client.ask(&format!("[1,[43,[{rows}]]]"))?;
        if answer["t"] != 1 {
            self.tally.failed(what, &answer);
        } else if answer["r"][0] != expected {
            self.tally.wrong(what, &format!("{} instead of {expected}", answer["r"][0]));
        }
        Ok(())
    }

    /// Reads the keys of the rows with one value in the index, batch by batch.
    fn scan_group(&self, client: &mut Client, random: &mut StdRng) -> Result<()> {
        let (group, rows) = self.group(random);
        self.scan(client, "scan by an index", &group, rows)
    }

    /// Reads the keys of `rows`, batch by batch; there must be `expected`, each once.
    fn scan(&self, client: &mut Client, what: &str, rows: &str, expected: usize) -> Result<()> {
        match client.ask_all(&format!("[1,[170,[{rows},\"id\"]]]")) {
            Ok(mut keys) => {
                let given = keys.len();
                keys.sort_by_cached_key(Value::to_string);
                keys.dedup();
                if (given, keys.len()) != (expected, expected) {
                    let how = format!("{given} keys, {} different ones, instead of {expected}", keys.len());
                    self.tally.wrong(what, &how);
                }
                Ok(())
            }
            Err(error) if error.to_string().contains("the query failed") => {
                self.tally.failed_with(what, &error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The read-only rows with a random value in the index, and their number.
    fn group(&self, random: &mut StdRng) -> (String, usize) {
        let group = random.random_range(0..GROUPS);
        let rows = (self.rows + GROUPS - 1 - group) / GROUPS;
        (format!("[78,[{TABLE},{group}],{{\"index\":\"group\"}}]"), rows)
    }

    fn rows_term(&self) -> String {
        let (first, behind) = (document_key(self.read_only, 0), document_key(self.read_only + 1, 0));
        format!("[182,[{TABLE},\"{first}\",\"{behind}\"]]")
    }
}
