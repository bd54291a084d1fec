//! Whether a server may be linked, as its preface and its hello decide. Nothing changes here.

use io::Nanos;
use uuid::Uuid;

use super::bootstrap::Bootstrap;
use super::fault::{Fault, Reason};
use super::identity::Identity;
use super::known_servers::KnownServers;
use super::peer::Peer;
use super::session::Origin;
use crate::link::contract::PeerInfo;
use crate::link::frame::{VERSIONS, Versions};
use crate::link::hello::Hello;

/// Asks whether this node may become a member of a cluster.
pub(super) type MayAdopt<'a> = &'a dyn Fn(Uuid, &PeerInfo) -> Result<(), String>;

/// Checks that both sides support a common version; `own` is the name of this server.
pub(super) fn check_versions(versions: Versions, own: &str) -> Result<(), Fault> {
    if VERSIONS.common(versions).is_some() {
        return Ok(());
    }
    let text = format!(
        "server \"{own}\" supports versions {} to {} of the protocol between servers, the other one {} to {}: run the \
         same release on both",
        VERSIONS.lowest, VERSIONS.highest, versions.lowest, versions.highest
    );
    Err(Fault::new(Reason::Version, text))
}

/// Checks that `hello` was sent by another server.
pub(super) fn check_server(hello: &Hello, origin: &Origin, own: &Identity) -> Result<(), Fault> {
    if hello.server != own.server() {
        return Ok(());
    }
    if own.is_sender_of(hello) {
        return Err(Fault::new(Reason::Itself, "a server needs no link to itself".to_owned()));
    }
    let text = format!(
        "servers \"{}\" and \"{}\" at {} have the same identity {}: one of their data directories is a copy of the other",
        own.name(),
        hello.name,
        origin.address(),
        hello.server
    );
    Err(Fault::new(Reason::Replaced, text))
}

/// Checks that the server was not removed, and that its process was not replaced by a later one. `peer` is the server
/// as it was linked before, if it was.
pub(super) fn check_process(
    hello: &Hello,
    known: &KnownServers,
    peer: Option<&Peer>,
    now: Nanos,
) -> Result<(), Fault> {
    let Hello { name, server, .. } = hello;
    if known.is_removed(*server) {
        return Err(Fault::removed(format!("\"{name}\" {server}")));
    }
    if peer.is_some_and(|peer| peer.was_replaced(hello, now)) {
        let text = format!("server \"{name}\" {server} was started again since, as another process");
        return Err(Fault::new(Reason::Replaced, text));
    }
    Ok(())
}

/// Checks that both servers belong to one cluster. `Some` is the cluster that this server has to join first.
pub(super) fn check_cluster(
    hello: &Hello,
    origin: &Origin,
    own: &Identity,
    bootstrap: &Bootstrap,
    may_adopt: MayAdopt<'_>,
) -> Result<Option<Uuid>, Fault> {
    let (name, other) = (own.name(), hello.name.as_str());
    let fault = match (own.cluster(), hello.cluster) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            let text = format!(
                "server \"{name}\" belongs to cluster {ours} and server \"{other}\" to cluster {theirs}: servers of \
                 two clusters cannot be linked, only one that has never held data joins a cluster"
            );
            Fault::new(Reason::Stranger, text)
        }
        (None, None) => {
            // The same text on both sides, so that each logs it once.
            let (one, another) = (name.min(other), name.max(other));
            let text = format!("neither server \"{one}\" nor server \"{another}\" belongs to a cluster yet");
            Fault::new(Reason::NoCluster, text)
        }
        (None, Some(_)) if matches!(origin, Origin::Accepted(_)) => {
            // A server joins only clusters that it has dialed: otherwise any server that dials it could decide which
            // cluster it joins.
            let text =
                format!("server \"{name}\" belongs to no cluster yet and joins only a server it dials");
            Fault::new(Reason::NoCluster, text)
        }
        (None, Some(cluster)) if bootstrap.is_under_way() => {
            let text = format!("server \"{name}\" is making another cluster and cannot join {cluster}");
            Fault::new(Reason::NotAdopted, text)
        }
        (None, Some(cluster)) => {
            return may_adopt(cluster, &hello.info(origin.address())).map(|()| Some(cluster)).map_err(
                |why| {
                    let text = format!("server \"{name}\" cannot join cluster {cluster}: {why}");
                    Fault::new(Reason::NotAdopted, text)
                },
            );
        }
        _ => return Ok(None),
    };
    Err(fault)
}
