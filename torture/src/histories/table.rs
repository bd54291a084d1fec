//! The table of the histories, and the requests about it.

use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::harness::client::Client;
use crate::harness::cluster::Cluster;

/// As a query of the wire protocol.
const TABLE: &str = "[15,[[14,[\"test\"]],\"histories\"]]";
/// The code of the error of a write that may or may not have an effect.
const OP_INDETERMINATE: u64 = 4_200_000;
/// How long the first responses of a new cluster may take.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the table may take to recover after the faults.
const RECOVERY_SECONDS: u64 = 60;
/// How long to wait for the response to a change of the shards.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to check whether all nodes are connected.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The response of a node to a change.
pub(super) enum ChangeResponse {
    Done,
    Refused(String),
    /// None: the change may have been made.
    Missing,
}

impl ChangeResponse {
    /// Sends a change to a node.
    pub(super) fn request(driver: SocketAddr, query: &str) -> ChangeResponse {
        match Client::connect_for(driver, CHANGE_TIMEOUT).and_then(|mut client| client.ask(query)) {
            Ok(answer) if answer["t"] == 1 => match answer["r"][0]["first_error"].as_str() {
                None => ChangeResponse::Done,
                Some(error) => ChangeResponse::Refused(error.to_owned()),
            },
            Ok(answer) => ChangeResponse::Refused(answer["r"][0].as_str().unwrap_or_default().to_owned()),
            Err(_) => ChangeResponse::Missing,
        }
    }
}

impl fmt::Display for ChangeResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChangeResponse::Done => "done",
            ChangeResponse::Refused(why) => why,
            ChangeResponse::Missing => "no answer",
        })
    }
}

/// The query that sets the numbers of shards and replicas.
pub(super) fn reconfiguration(shards: usize, replicas: usize) -> String {
    format!("[1,[176,[{TABLE}],{{\"shards\":{shards},\"replicas\":{replicas}}}]]")
}

/// The query that makes one shard on these servers; the first is its leader.
pub(super) fn placement(servers: &[String]) -> String {
    let names: Vec<String> = servers.iter().map(|name| format!("\"{name}\"")).collect();
    let (primary, replicas) = (&names[0], names.join(","));
    let shard = format!(
        "{{\"primary_replica\":{primary},\"replicas\":[2,[{replicas}]],\"nonvoting_replicas\":[2,[]]}}"
    );
    format!("[1,[53,[[174,[{TABLE}]],{{\"shards\":[2,[{shard}]]}}]]]")
}

/// Creates the table with this number of replicas and these settings of its configuration, as JSON.
pub(super) fn create(cluster: &Cluster, replicas: usize, settings: &str) -> Result<()> {
    let mut client = Client::connect_for(cluster.drivers()[0], FIRST_RESPONSE_TIMEOUT)?;
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

/// Waits until every node is connected to all others and reports every replica as ready. Fails after a minute: without
/// faults a cluster recovers by itself.
pub(super) fn await_recovery(cluster: &Cluster) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(RECOVERY_SECONDS);
    let drivers = cluster.drivers();
    let servers = "[1,[43,[[15,[[14,[\"rethinkdb\"]],\"server_status\"]]]]]";
    for driver in &drivers {
        let mut client = client(*driver)?;
        let mut answer = client.ask(servers)?;
        while answer["r"][0].as_u64() != u64::try_from(drivers.len()).ok() {
            if Instant::now() > deadline {
                bail!("{driver} is not connected to all servers: {answer}");
            }
            thread::sleep(POLL_INTERVAL);
            answer = client.ask(servers)?;
        }
        await_ready(&mut client)?;
    }
    Ok(())
}

/// Waits until every replica is ready, and writes through every node.
pub(super) fn check_writable(cluster: &Cluster) -> Result<()> {
    let write = format!("[1,[56,[{TABLE},{{\"id\":\"healed\"}}]]]");
    let deadline = Instant::now() + Duration::from_secs(RECOVERY_SECONDS);
    for driver in cluster.drivers() {
        let mut client = client(driver)?;
        loop {
            await_ready(&mut client)?;
            let written = client.ask(&write)?;
            if written["t"] == 1 {
                break;
            }
            // A node that was stopped may have led a shard until this write reached it.
            let may_repeat = written["e"] == OP_INDETERMINATE && Instant::now() < deadline;
            if !may_repeat {
                bail!("the table refuses a write: {written}");
            }
        }
    }
    Ok(())
}

fn client(driver: SocketAddr) -> Result<Client> {
    Client::connect_for(driver, Duration::from_secs(2 * RECOVERY_SECONDS))
}

fn await_ready(client: &mut Client) -> Result<()> {
    let wait =
        format!("[1,[177,[{TABLE}],{{\"wait_for\":\"all_replicas_ready\",\"timeout\":{RECOVERY_SECONDS}}}]]");
    let waited = client.ask(&wait)?;
    match waited["t"] == 1 {
        true => Ok(()),
        false => bail!("the table does not become ready: {waited}"),
    }
}
