//! Whether the replicas of a table have the same rows.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::client::Client;

/// How long followers may take to apply the last writes.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The nodes with other rows of `test.TABLE` than the first node. Each node reads its local replicas, and the leader for
/// shards of which it has no replica. No client may write meanwhile.
pub(crate) fn divergent_nodes(drivers: &[SocketAddr], table: &str) -> Result<Vec<usize>> {
    let deadline = Instant::now() + CATCH_UP_TIMEOUT;
    let query = format!("[1,[15,[[14,[\"test\"]],\"{table}\"],{{\"read_mode\":\"_debug_direct\"}}]]");
    loop {
        let mut copies = Vec::with_capacity(drivers.len());
        for driver in drivers {
            let mut rows = Client::connect_for(*driver, RESPONSE_TIMEOUT)?.ask_all(&query)?;
            rows.sort_by_cached_key(|row| row["id"].as_str().unwrap_or_default().to_owned());
            copies.push(rows);
        }
        let divergent: Vec<usize> = (1..copies.len()).filter(|nth| copies[*nth] != copies[0]).collect();
        if divergent.is_empty() || Instant::now() > deadline {
            return Ok(divergent);
        }
    }
}
