//! How a server with an empty directory comes into a cluster: it asks any server that is in it, and
//! writes down who it is before it opens anything.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::Text;
use io::{Files, task};
use uuid::Uuid;

use crate::post::{PeerTransport, Post};
use crate::serve::{join_answer, join_question};
use crate::{Identity, OpenError, PeerId, ReplicaConfig, RpcError, ServerConfig, ServerId};

const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(300);
/// When it is said what is waited for, the first time and from then on.
const WORD: Duration = Duration::from_secs(5);
const WORD_AGAIN: Duration = Duration::from_secs(60);

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
/// in `dir`. Gives up when `patience` is over, if that is given: a cluster may be without a majority for days. Fails
/// with [`OpenError::Removed`] once `members` are none: they have said that they removed this one for good.
pub fn join(
    options: &JoinOptions,
    post: &Arc<Post>,
    members: impl Fn() -> Option<Vec<ServerId>>,
    files: &dyn Files,
    dir: &Path,
    patience: Option<Duration>,
) -> Result<Identity, OpenError> {
    let Some(wire) = post.wire() else { return Err(OpenError::Join("there is no network".to_owned())) };
    let deadline = patience.map(|patience| task::now() + patience);
    let mut waiting = Waiting { cluster: options.cluster, why: None, next: task::now() + WORD };
    while deadline.is_none_or(|deadline| task::now() < deadline) {
        for member in members().ok_or(OpenError::Removed)? {
            match ask(&**wire, member, options, &mut waiting) {
                Ok(bytes) => {
                    let answer = join_answer(bytes)?;
                    post.learn(answer.places);
                    let (server, cluster) = (options.server, options.cluster);
                    let identity = Identity { server, cluster, joined: Some(answer.own) };
                    identity.store(files, dir)?;
                    return Ok(identity);
                }
                Err(error) => waiting.why = Some(error.to_string()),
            }
        }
        waiting.say();
        task::sleep(PAUSE);
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
        self.next = task::now() + WORD_AGAIN;
        let why = self.why.as_deref().unwrap_or("no server of it can be reached");
        tracing::info!(
            "Waiting to be let into cluster {}, which takes a majority of the servers that keep its \
             configuration: {why}",
            self.cluster
        );
    }
}

fn ask(
    wire: &dyn PeerTransport,
    member: ServerId,
    options: &JoinOptions,
    waiting: &mut Waiting,
) -> Result<bytes::Bytes, RpcError> {
    let request = join_question(ServerConfig {
        id: options.server,
        name: options.name.clone(),
        tags: options.tags.clone(),
        cache_size_mb: options.cache_size_mb,
        addresses: options.addresses.clone(),
        // Drawn by those who let it in.
        catalog: ReplicaConfig { server: options.server, peer: PeerId(0), voting: false },
        is_proxy: options.is_proxy,
    });
    let (sender, receiver) = task::channel();
    wire.ask(member, request, PATIENCE, Box::new(move |answer| drop(sender.send(answer))));
    loop {
        let until = task::now() + WORD;
        match receiver.recv_timeout(WORD) {
            Some(answer) => return answer,
            // Whoever was to answer is gone.
            None if task::now() < until => return Err(RpcError::NoAnswer(member)),
            None => waiting.say(),
        }
    }
}
