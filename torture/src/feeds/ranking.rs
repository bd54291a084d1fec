//! Feeds of the first rows of an order, compared with the table after each change. One writer changes few documents with few
//! scores, often those at the edge of the first rows.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::check::{Fault, FaultKind, FirstRows, FirstRowsChecker, Rest};
use super::connection::Connection;
use super::faults::succeed;
use super::model::{Content, Document, Model, as_term, row};
use super::tally::Tally;
use crate::harness::client::Client;
use crate::harness::cluster::Cluster;

const DOCUMENTS: u32 = 300;
const SIZES: [usize; 3] = [1, 10, 100];
/// How long the feeds may take to deliver a change.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_secs(1);

/// Makes `count` changes, or fewer if it takes until `until`. Fails when a feed differs from the table after one of them.
pub(super) fn compare(
    cluster: &Cluster,
    count: u32,
    until: Option<Instant>,
    tally: &Tally,
    random: &mut StdRng,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let driver = cluster.drivers()[0];
    let mut ranking = Ranking::create(driver, StdRng::seed_from_u64(random.random()))?;
    ranking.fill()?;
    let mut feeds = Feeds::open(cluster.drivers()[1], ranking.model)?;
    let mut changes = 0;
    while changes < count && until.is_none_or(|until| Instant::now() < until) {
        let what = ranking.change()?;
        changes += 1;
        if let Err(fault) = feeds.reach(&ranking.ordered) {
            tally.fault(fault, &format!("after change {changes} of first rows, {what}"));
            bail!("a feed of first rows differs from the table");
        }
    }
    println!(
        "feeds: {} feeds of first rows equal the table after each of {changes} changes; {} elements",
        feeds.feeds.len(),
        feeds.elements
    );
    Ok(())
}

/// The table, and all its rows ascending by score and key.
struct Ranking {
    client: Client,
    model: Model,
    versions: Vec<u32>,
    ordered: Vec<(Document, Content)>,
    random: StdRng,
}

impl Ranking {
    fn create(driver: SocketAddr, mut random: StdRng) -> Result<Ranking> {
        let mut client = Client::connect_for(driver, CONNECT_TIMEOUT)?;
        let shape = json!({ "replicas": 3, "shards": 2, "durability": "soft" });
        succeed(&mut client, &json!([60, [[14, ["test"]], "ranking"], shape]))?;
        succeed(&mut client, &json!([75, [table(), "score"]]))?;
        succeed(&mut client, &json!([140, [table()]]))?;
        succeed(&mut client, &json!([177, [table()], { "wait_for": "all_replicas_ready", "timeout": 60 }]))?;
        let model = Model { seed: random.random() };
        Ok(Ranking { client, model, versions: vec![0; DOCUMENTS as usize], ordered: Vec::new(), random })
    }

    fn fill(&mut self) -> Result<()> {
        (0..DOCUMENTS).try_for_each(|number| self.write(number).map(drop))
    }

    /// Changes one document; returns a description.
    fn change(&mut self) -> Result<String> {
        let number = match self.random.random_ratio(1, 3) {
            true => self.at_the_edge(),
            false => self.random.random_range(0..DOCUMENTS),
        };
        self.write(number)
    }

    /// A document among the last first rows of a feed, or the first that follow.
    fn at_the_edge(&mut self) -> u32 {
        let size = SIZES[self.random.random_range(0..SIZES.len())];
        let place = (size + self.random.random_range(0..3)).saturating_sub(2);
        let place = if self.random.random() { place } else { self.ordered.len().saturating_sub(place + 1) };
        self.ordered.get(place).map_or(0, |(document, _)| document.number)
    }

    fn write(&mut self, number: u32) -> Result<String> {
        let document = Document { writer: 0, number };
        let version = self.versions[number as usize] + 1;
        let term = match self.model.state(document, version) {
            None => json!([54, [[16, [table(), document.key()]]]]),
            Some(content) => {
                json!([56, [table(), as_term(row(document, &content))], { "conflict": "replace" }])
            }
        };
        let answer = self.client.ask(&json!([1, term]).to_string()).context("changing a row")?;
        let result = &answer["r"][0];
        let changed = ["inserted", "replaced", "deleted"].iter().any(|field| result[field] == 1);
        ensure!(changed, "{term} was answered with {answer}");
        self.versions[number as usize] = version;
        self.ordered.retain(|(other, _)| *other != document);
        if let Some(content) = self.model.state(document, version) {
            let place = |(other, at): &(Document, Content)| (at.score, *other) < (content.score, document);
            self.ordered.insert(self.ordered.partition_point(place), (document, content));
        }
        Ok(format!("version {version} of {}", document.key()))
    }
}

/// The feeds of first rows, on one connection.
struct Feeds {
    connection: Connection,
    feeds: Vec<(u64, FirstRowsChecker)>,
    elements: u64,
}

impl Feeds {
    fn open(driver: SocketAddr, model: Model) -> Result<Feeds> {
        let mut connection = Connection::open(driver, CONNECT_TIMEOUT, TICK)?;
        let mut feeds = Vec::new();
        for (nth, most) in SIZES.into_iter().cycle().take(4 * SIZES.len()).enumerate() {
            let (is_descending, squash) = ((nth / SIZES.len()) % 2 == 1, nth / SIZES.len() / 2 == 1);
            let followed = FirstRows { most, is_descending, below: None, with_offsets: true };
            let options = json!({ "include_initial": true, "include_states": true, "include_offsets": true, "squash": squash });
            let query = json!([1, [152, [followed.term(&table())], options]]);
            let token = connection.start(&query.to_string())?;
            feeds.push((token, FirstRowsChecker::new(followed, model)));
        }
        Ok(Feeds { connection, feeds, elements: 0 })
    }

    /// Takes elements until all feeds have the first of these rows.
    fn reach(&mut self, ordered: &[(Document, Content)]) -> Result<(), Fault> {
        let rest = Rest { versions: Vec::new(), ordered: ordered.to_vec() };
        let deadline = Instant::now() + DELIVERY_TIMEOUT;
        loop {
            let differs = self.feeds.iter().find_map(|(_, feed)| feed.rest(&rest).err());
            let Some(why) = differs else { return Ok(()) };
            if Instant::now() > deadline {
                return Err(Fault::new(FaultKind::Fold, why));
            }
            self.take_one()?;
        }
    }

    /// Takes one response, if there is one.
    fn take_one(&mut self) -> Result<(), Fault> {
        let ended = |error: anyhow::Error| Fault::new(FaultKind::Ended, format!("{error:#}"));
        let Some((token, mut response)) = self.connection.poll().map_err(ended)? else { return Ok(()) };
        let feed = self.feeds.iter_mut().find(|(own, _)| *own == token);
        let (Some((_, feed)), true) = (feed, response["t"] == 3) else {
            return Err(Fault::new(FaultKind::Ended, response.to_string()));
        };
        if let Value::Array(elements) = response["r"].take() {
            self.elements += elements.len() as u64;
            elements.iter().try_for_each(|element| feed.take(element, |_| u32::MAX))?;
        }
        self.connection.proceed(token).map_err(ended)
    }
}

fn table() -> Value {
    json!([15, [[14, ["test"]], "ranking"]])
}
