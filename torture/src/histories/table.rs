//! The table of the histories: made, changed, and waited for.

use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::harness::client::Client;
use crate::harness::cluster::Cluster;

/// As a query of the wire protocol.
const TABLE: &str = "[15,[[14,[\"test\"]],\"histories\"]]";
/// How long the first answers of a new cluster may take.
const PATIENCE_AT_START: Duration = Duration::from_secs(60);
/// How long a table may take to be whole when the faults are over.
const HEALED_SECONDS: u64 = 60;
/// Who asks for other shards gives up after so long.
const CHANGE: Duration = Duration::from_secs(10);
/// Between two looks whether all nodes are connected.
const LOOK: Duration = Duration::from_millis(50);

/// What a node said to a change.
pub(super) enum Said {
    Done,
    Refused(String),
    /// It may have been done.
    Nothing,
}

impl Said {
    /// Asks a node.
    pub(super) fn to(driver: SocketAddr, query: &str) -> Said {
        match Client::connect_for(driver, CHANGE).and_then(|mut client| client.ask(query)) {
            Ok(answer) if answer["t"] == 1 => match answer["r"][0]["first_error"].as_str() {
                None => Said::Done,
                Some(error) => Said::Refused(error.to_owned()),
            },
            Ok(answer) => Said::Refused(answer["r"][0].as_str().unwrap_or_default().to_owned()),
            Err(_) => Said::Nothing,
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Said::Done => "done",
            Said::Refused(why) => why,
            Said::Nothing => "no answer",
        })
    }
}

/// The change to so many shards and replicas.
pub(super) fn reconfiguration(shards: usize, replicas: usize) -> String {
    format!("[1,[176,[{TABLE}],{{\"shards\":{shards},\"replicas\":{replicas}}}]]")
}

/// The change to one shard on these servers, led by the first.
pub(super) fn placement(servers: &[String]) -> String {
    let names: Vec<String> = servers.iter().map(|name| format!("\"{name}\"")).collect();
    let (primary, replicas) = (&names[0], names.join(","));
    let shard = format!(
        "{{\"primary_replica\":{primary},\"replicas\":[2,[{replicas}]],\"nonvoting_replicas\":[2,[]]}}"
    );
    format!("[1,[53,[[174,[{TABLE}]],{{\"shards\":[2,[{shard}]]}}]]]")
}

/// Makes the table with a replica on each of so many nodes, and with these settings of its configuration, as JSON.
pub(super) fn create(cluster: &Cluster, replicas: usize, settings: &str) -> Result<()> {
    let mut client = Client::connect_for(cluster.drivers()[0], PATIENCE_AT_START)?;
    let query = format!("[1,[60,[[14,[\"test\"]],\"histories\"],{{\"replicas\":{replicas}}}]]");
    let answer = client.ask(&query)?;
    let configure = format!("[1,[53,[[174,[{TABLE}]],{settings}]]]");
    let configured = client.ask(&configure)?;
    if configured["t"] != 1 || !configured["r"][0]["first_error"].is_null() {
        bail!("the table's modes could not be set: {configured}");
    }
    let wait = format!("[1,[177,[{TABLE}],{{\"timeout\":60}}]]");
    match (answer["t"].as_u64(), client.ask(&wait)?["t"].as_u64()) {
        (Some(1), Some(1)) => Ok(()),
        _ => bail!("the table could not be created: {answer}"),
    }
}

/// Waits until every node is connected to all others, and sees every replica ready. Fails if that takes more than a
/// minute: a cluster that nothing befalls any more becomes whole by itself.
pub(super) fn await_whole(cluster: &Cluster) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(HEALED_SECONDS);
    let drivers = cluster.drivers();
    let servers = "[1,[43,[[15,[[14,[\"rethinkdb\"]],\"server_status\"]]]]]";
    for driver in &drivers {
        let mut client = client(*driver)?;
        let mut answer = client.ask(servers)?;
        while answer["r"][0].as_u64() != u64::try_from(drivers.len()).ok() {
            if Instant::now() > deadline {
                bail!("{driver} is not connected to all servers: {answer}");
            }
            thread::sleep(LOOK);
            answer = client.ask(servers)?;
        }
        await_ready(&mut client)?;
    }
    Ok(())
}

/// Afterwards the table comes back by itself: every replica is ready, and it takes a write.
pub(super) fn is_writable(cluster: &Cluster) -> Result<()> {
    let write = format!("[1,[56,[{TABLE},{{\"id\":\"healed\"}}]]]");
    for driver in cluster.drivers() {
        let mut client = client(driver)?;
        await_ready(&mut client)?;
        let written = client.ask(&write)?;
        if written["t"] != 1 {
            bail!("the table takes no write: {written}");
        }
    }
    Ok(())
}

fn client(driver: SocketAddr) -> Result<Client> {
    Client::connect_for(driver, Duration::from_secs(2 * HEALED_SECONDS))
}

fn await_ready(client: &mut Client) -> Result<()> {
    let wait =
        format!("[1,[177,[{TABLE}],{{\"wait_for\":\"all_replicas_ready\",\"timeout\":{HEALED_SECONDS}}}]]");
    let waited = client.ask(&wait)?;
    match waited["t"] == 1 {
        true => Ok(()),
        false => bail!("the table does not come back: {waited}"),
    }
}
