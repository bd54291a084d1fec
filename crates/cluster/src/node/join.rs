//! Joins a server with an empty data directory to a cluster: asks the servers of the cluster until one admits it, and
//! stores the identity before anything is opened.

use std::path::Path;
use std::time::{Duration, Instant};

use datum::Text;
use io::{Files, task};
use uuid::Uuid;

use super::wiring::Wiring;
use crate::catalog::Identity;
use crate::catalog::row::CatalogRow;
use crate::config::{PeerId, ReplicaConfig, ServerConfig, ServerId};
use crate::error::OpenError;
use crate::rpc::response::JoinResponse;
use crate::rpc::{PeerTransport, Request, RpcError};

/// How long a server may take to respond to a request to join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
/// The wait between two requests to join.
const JOIN_RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// How long a server waits to be admitted before the wait is logged, and the time between two such lines.
const FIRST_WAITING_LOG_DELAY: Duration = Duration::from_secs(5);
const WAITING_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The properties of a server that joins.
pub struct JoinOptions {
    pub server: ServerId,
    /// The cluster it joins.
    pub cluster: Uuid,
    pub name: Text,
    pub tags: Vec<Text>,
    /// The size of its cache in megabytes; `None` chooses one.
    pub cache_size_mb: Option<u64>,
    /// The addresses at which other servers reach it, `host:port`.
    pub addresses: Vec<Text>,
    /// Whether it is a proxy: it holds no data and only serves clients.
    pub is_proxy: bool,
}

/// Asks the servers that `members` returns to admit this one, in a loop, and stores the resulting identity in `dir`.
/// Without a `timeout` it asks until it is admitted: a cluster may be without a quorum for days. Fails with
/// [`OpenError::Removed`] once `members` returns `None`: the other servers have then reported that this one was removed
/// permanently.
pub fn join(
    options: &JoinOptions,
    wiring: &Wiring,
    members: impl Fn() -> Option<Vec<ServerId>>,
    files: &dyn Files,
    dir: &Path,
    timeout: Option<Duration>,
) -> Result<Identity, OpenError> {
    let Some(transport) = wiring.peers.transport() else {
        return Err(OpenError::Join("there is no network".to_owned()));
    };
    let deadline = timeout.map(|timeout| task::now() + timeout);
    let mut waiting =
        Waiting { cluster: options.cluster, reason: None, next_log: task::now() + FIRST_WAITING_LOG_DELAY };
    while deadline.is_none_or(|deadline| task::now() < deadline) {
        for member in members().ok_or(OpenError::Removed)? {
            match ask(&**transport, member, options, &mut waiting) {
                Ok(bytes) => {
                    let response = JoinResponse::decode(bytes)
                        .ok_or_else(|| OpenError::Join("the response cannot be decoded".to_owned()))?;
                    wiring.transport.learn(response.places);
                    let (server, cluster) = (options.server, options.cluster);
                    let identity = Identity { server, cluster, joined: Some(response.own) };
                    identity.store(files, dir)?;
                    return Ok(identity);
                }
                Err(error) => waiting.reason = Some(error.to_string()),
            }
        }
        waiting.log_if_due();
        task::sleep(JOIN_RETRY_INTERVAL);
    }
    Err(OpenError::Join(
        waiting.reason.unwrap_or_else(|| "no server of the cluster was reachable".to_owned()),
    ))
}

/// The wait of a server that is to be admitted.
struct Waiting {
    cluster: Uuid,
    /// The error of the last request.
    reason: Option<String>,
    next_log: Instant,
}

impl Waiting {
    fn log_if_due(&mut self) {
        if task::now() < self.next_log {
            return;
        }
        self.next_log = task::now() + WAITING_LOG_INTERVAL;
        let reason = self.reason.as_deref().unwrap_or("no server of the cluster is reachable");
        tracing::info!(
            "Waiting to join cluster {}, which needs a majority of the servers that keep its configuration: \
             {reason}",
            self.cluster
        );
    }
}

fn ask(
    transport: &dyn PeerTransport,
    member: ServerId,
    options: &JoinOptions,
    waiting: &mut Waiting,
) -> Result<bytes::Bytes, RpcError> {
    let row = CatalogRow::Server(ServerConfig {
        id: options.server,
        name: options.name.clone(),
        tags: options.tags.clone(),
        cache_size_mb: options.cache_size_mb,
        addresses: options.addresses.clone(),
        // The server that admits it assigns the replica.
        catalog: ReplicaConfig { server: options.server, peer: PeerId(0), voting: false },
        is_proxy: options.is_proxy,
    });
    let request = Request::Join { server: row.to_object() }.encode();
    let (sender, receiver) = task::channel();
    transport.call(member, request, JOIN_TIMEOUT, Box::new(move |response| drop(sender.send(response))));
    loop {
        let until = task::now() + FIRST_WAITING_LOG_DELAY;
        match receiver.recv_timeout(FIRST_WAITING_LOG_DELAY) {
            Some(response) => return response,
            // The sender was dropped without a response.
            None if task::now() < until => return Err(RpcError::NoResponse(member)),
            None => waiting.log_if_due(),
        }
    }
}
