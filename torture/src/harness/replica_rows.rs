//! Whether the replicas of a table have the same rows.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::client::Client;

/// Replicas may hear of the last writes a little later than the one that leads.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);

/// The nodes at which the rows of `test.TABLE` are not those of the first node, each asked for what it has
/// itself (of shards that it does not have, for what the leader has). Nobody may write meanwhile.
pub(crate) fn unlike(drivers: &[SocketAddr], table: &str) -> Result<Vec<usize>> {
    let deadline = Instant::now() + PATIENCE;
    let own = format!("[1,[15,[[14,[\"test\"]],\"{table}\"],{{\"read_mode\":\"_debug_direct\"}}]]");
    loop {
        let mut copies = Vec::with_capacity(drivers.len());
        for driver in drivers {
            let mut rows = Client::connect_for(*driver, ANSWER)?.ask_all(&own)?;
            rows.sort_by_cached_key(|row| row["id"].as_str().unwrap_or_default().to_owned());
            copies.push(rows);
        }
        let unlike: Vec<usize> = (1..copies.len()).filter(|nth| copies[*nth] != copies[0]).collect();
        if unlike.is_empty() || Instant::now() > deadline {
            return Ok(unlike);
        }
    }
}
