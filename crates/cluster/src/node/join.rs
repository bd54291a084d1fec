//! Joins a server with an empty data directory to a cluster: it asks any server of the cluster to admit it, and stores its identity
//! before it opens anything.

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
/// How long a server waits to be admitted before that is logged, and the time between two such lines.
const FIRST_WAITING_LOG_DELAY: Duration = Duration::from_secs(5);
const WAITING_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What a server says of itself when it joins.
pub struct JoinOptions {
    /// Which server it is.
    pub server: ServerId,
    /// The cluster it is to be in.
    pub cluster: Uuid,
    /// Its name.
    pub name: Text,
    /// Its tags.
    pub tags: Vec<Text>,
    /// Its cache in megabytes; `None` chooses.
    pub cache_size_mb: Option<u64>,
    /// Where others reach it, `host:port`.
    pub addresses: Vec<Text>,
    /// Whether it only answers clients.
    pub is_proxy: bool,
}

/// Asks the servers that `members` names to let this one into their cluster, again and again, and keeps what they say
/// in `dir`. Gives up when `timeout` is over, if that is given: a cluster may be without a majority for days. Fails
/// with [`OpenError::Removed`] once `members` are none: they have said that they removed this one for good.
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
        Waiting { cluster: options.cluster, why: None, next: task::now() + FIRST_WAITING_LOG_DELAY };
    while deadline.is_none_or(|deadline| task::now() < deadline) {
        for member in members().ok_or(OpenError::Removed)? {
            match ask(&**transport, member, options, &mut waiting) {
                Ok(bytes) => {
                    let answer = JoinResponse::decode(bytes)
                        .ok_or_else(|| OpenError::Join("the response cannot be decoded".to_owned()))?;
                    wiring.transport.learn(answer.places);
                    let (server, cluster) = (options.server, options.cluster);
                    let identity = Identity { server, cluster, joined: Some(answer.own) };
                    identity.store(files, dir)?;
                    return Ok(identity);
                }
                Err(error) => waiting.why = Some(error.to_string()),
            }
        }
        waiting.say();
        task::sleep(JOIN_RETRY_INTERVAL);
    }
    Err(OpenError::Join(waiting.why.unwrap_or_else(|| "no server of it could be reached".to_owned())))
}

/// What a server waits for that is to be let in.
struct Waiting {
    cluster: Uuid,
    /// What was answered last.
    why: Option<String>,
    next: Instant,
}

impl Waiting {
    /// Says it, if that is due.
    fn say(&mut self) {
        if task::now() < self.next {
            return;
        }
        self.next = task::now() + WAITING_LOG_INTERVAL;
        let why = self.why.as_deref().unwrap_or("no server of it can be reached");
        tracing::info!(
            "Waiting to be let into cluster {}, which takes a majority of the servers that keep its \
             configuration: {why}",
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
        // Drawn by those who let it in.
        catalog: ReplicaConfig { server: options.server, peer: PeerId(0), voting: false },
        is_proxy: options.is_proxy,
    });
    let request = Request::Join { server: row.to_object() }.encode();
    let (sender, receiver) = task::channel();
    transport.call(member, request, JOIN_TIMEOUT, Box::new(move |answer| drop(sender.send(answer))));
    loop {
        let until = task::now() + FIRST_WAITING_LOG_DELAY;
        match receiver.recv_timeout(FIRST_WAITING_LOG_DELAY) {
            Some(answer) => return answer,
            // Whoever was to answer is gone.
            None if task::now() < until => return Err(RpcError::NoAnswer(member)),
            None => waiting.say(),
        }
    }
}
