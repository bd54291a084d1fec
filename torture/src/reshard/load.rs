//! Those who write and read all the while, each through one node until that does not answer.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::layout::TABLE;
use super::tally::Tally;
use crate::harness::client::Client;
use crate::workload::ledger::{Page, document_key, filler};
use crate::workload::writers::{Answered, write_one};

/// What is not answered by then never is.
const PATIENCE: Duration = Duration::from_secs(30);
/// Readers leave the writers some of the machine.
const READ_REST: Duration = Duration::from_millis(5);
/// The rows that nobody writes have so many values in the index, each as often as the others or once more.
pub(super) const GROUPS: usize = 7;
/// How often a client goes to another node by itself.
const WANDER: u32 = 500;

/// The load.
pub(super) struct Load<'a> {
    drivers: Vec<SocketAddr>,
    tally: &'a Tally,
    /// The page of the rows that nobody writes, and how many there are.
    still: usize,
    rows: usize,
    /// Set when the clients are to end.
    pub(super) over: AtomicBool,
}

impl<'a> Load<'a> {
    pub(super) fn new(drivers: Vec<SocketAddr>, tally: &'a Tally, still: usize, rows: usize) -> Load<'a> {
        Load { drivers, tally, still, rows, over: AtomicBool::new(false) }
    }

    /// One writer, until it is over.
    pub(super) fn write(&self, writer: usize, page: &mut Page, mut random: StdRng) {
        self.through_any(&mut random, |client, random| {
            let (began, change) = (Instant::now(), self.tally.change());
            let (number, answered) = write_one(writer, page, client, random);
            self.tally.wrote(change, began.elapsed());
            match answered {
                Ok(Answered::Acknowledged) => Ok(()),
                Ok(Answered::Otherwise(answer)) => {
                    // It may still come to pass, even after later ones: nothing later may depend on it.
                    page.documents[number].retired = true;
                    self.tally.failed("write", &answer);
                    Ok(())
                }
                Err(error) => {
                    page.documents[number].retired = true;
                    Err(error)
                }
            }
        });
    }

    /// One reader, until it is over.
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
            thread::sleep(READ_REST);
            answer
        });
    }

    /// Does `one` again and again, with another client after a failure and now and then.
    fn through_any(&self, random: &mut StdRng, mut one: impl FnMut(&mut Client, &mut StdRng) -> Result<()>) {
        while !self.over.load(Ordering::Acquire) {
            let nth = random.random_range(0..self.drivers.len());
            let Ok(mut client) = Client::connect_for(self.drivers[nth], PATIENCE) else {
                self.tally.unanswered("connecting");
                continue;
            };
            while !self.over.load(Ordering::Acquire) && !random.random_ratio(1, WANDER) {
                if let Err(error) = one(&mut client, random) {
                    self.tally.unanswered(&format!("{error:#}"));
                    break;
                }
            }
        }
    }

    /// One row that nobody writes.
    fn get(&self, client: &mut Client, random: &mut StdRng, mode: &str) -> Result<()> {
        let key = document_key(self.still, random.random_range(0..self.rows));
        let table = format!("[15,[[14,[\"test\"]],\"crash\"],{{\"read_mode\":\"{mode}\"}}]");
        let answer = client.ask(&format!("[1,[16,[{table},\"{key}\"]]]"))?;
        if answer["t"] != 1 {
            self.tally.failed(&format!("get, {mode}"), &answer);
        } else if answer["r"][0]["filler"] != filler(&key, 1) {
            self.tally.wrong(&format!("get, {mode}"), &format!("{key} is {}", answer["r"][0]));
        }
        Ok(())
    }

    /// How many rows there are that nobody writes.
    fn count(&self, client: &mut Client) -> Result<()> {
        self.check_count(client, "count", &self.rows_term(), self.rows)
    }

    /// How many of them have one value in the index.
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

    /// The keys of those that have one value in the index, batch by batch.
    fn scan_group(&self, client: &mut Client, random: &mut StdRng) -> Result<()> {
        let (group, rows) = self.group(random);
        self.scan(client, "scan by an index", &group, rows)
    }

    /// The keys of `rows`, batch by batch: so many, each once.
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
                self.tally.failed_in_words(what, &error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The rows that nobody writes with some value in the index, and how many they are.
    fn group(&self, random: &mut StdRng) -> (String, usize) {
        let group = random.random_range(0..GROUPS);
        let rows = (self.rows + GROUPS - 1 - group) / GROUPS;
        (format!("[78,[{TABLE},{group}],{{\"index\":\"group\"}}]"), rows)
    }

    fn rows_term(&self) -> String {
        let (first, behind) = (document_key(self.still, 0), document_key(self.still + 1, 0));
        format!("[182,[{TABLE},\"{first}\",\"{behind}\"]]")
    }
}
