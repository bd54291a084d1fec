//! Chunks that contain control frames or damage among the data frames; connections of a server that is removed.

use bytes::BytesMut;

use super::*;
use crate::link::frame::{Kind, flag};
use crate::link::log_message::{self, PeerId};

/// Two linked servers: the first one, the other's id, and the link as the first one knows it.
fn linked() -> (Machine, ServerId, ConnectionId) {
    let ([one, other], link) = linked_pair(1, 2);
    (one, other.identity.server(), link)
}

/// Two linked servers with these numbers, and the link as the first one knows it.
fn linked_pair(one: u128, other: u128) -> ([Machine; 2], ConnectionId) {
    let mut network = pair(machine(one, Some(1), &[&format!("n{other}:1")]), machine(other, Some(1), &[]));
    network.run(Duration::from_secs(1));
    let server = network.machines[1].identity.server();
    let link = network.machines[0].peers.get(server).and_then(|peer| peer.link).expect("they are linked");
    (network.machines, link)
}

/// A second connection, which `other` has dialed to `one`. Both hellos were received.
fn second_connection(one: &mut Machine, other: &mut Machine) -> ConnectionId {
    let id = ConnectionId::accepted(100);
    other.send_hello(id);
    let mut network_commands = Vec::new();
    other.output.take_network_commands(&mut network_commands);
    let Some(NetworkCommand::Send { bytes, .. }) = network_commands.pop() else { panic!("there is a hello") };
    let (now, mut network_events) =
        (one.schedule.now(), vec![NetworkEvent::Accepted(id, from("10.0.0.5:7"))]);
    one.step(now, &mut network_events, &mut Vec::new(), &|_, _| Ok(()), &mut Vec::new());
    assert!(effects_of(one, id, &[bytes.concat()]).is_empty());
    assert!(!closes(one, id), "its consent is awaited");
    id
}

/// A frame with one replication message to the replica with this number.
fn log_message(to: u64) -> Vec<u8> {
    let mut payload = BytesMut::new();
    log_message::put(
        &mut payload,
        &Message {
            group: log::GroupId(1),
            from: PeerId(1),
            to: PeerId(to),
            body: Bytes::from_static(b"text"),
        },
    );
    frame_of(Kind::LogMessages, to, &payload)
}

fn frame_of(kind: Kind, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put(&mut out, kind, flag::WHOLE, number, payload);
    out.to_vec()
}

/// A frame with an address book that lists `server` as removed.
fn address_book_without(server: ServerId) -> Vec<u8> {
    let mut address_book = AddressBook::default();
    assert!(address_book.remove(server));
    frame_of(Kind::Book, 0, address_book.to_text().as_bytes())
}

/// The effects on `machine` when `frames` are received as one chunk. Log lines and changes of the address book are
/// left out.
fn effects_of(machine: &mut Machine, link: ConnectionId, frames: &[Vec<u8>]) -> Vec<String> {
    effects_after(machine, vec![NetworkEvent::Arrived(link, Bytes::from(frames.concat()))], Vec::new())
}

/// The effects of these events and commands.
fn effects_after(
    machine: &mut Machine,
    mut network_events: Vec<NetworkEvent>,
    mut commands: Vec<Command>,
) -> Vec<String> {
    let (now, mut effects) = (machine.schedule.now(), Vec::new());
    machine.step(now, &mut network_events, &mut commands, &|_, _| Ok(()), &mut effects);
    let text = |effect| match effect {
        Effect::LogMessages(_, log_messages) => Some(format!("message {}", log_messages[0].to.0)),
        Effect::Request { number, .. } => Some(format!("request {number}")),
        Effect::Connected(..) => Some("connected".to_owned()),
        Effect::Unlinked(_) => Some("unlinked".to_owned()),
        _ => None,
    };
    effects.into_iter().filter_map(text).collect()
}

fn closes(machine: &mut Machine, link: ConnectionId) -> bool {
    let mut network_commands = Vec::new();
    machine.network_commands(&mut network_commands);
    network_commands.iter().any(|order| matches!(order, NetworkCommand::Close(id) if *id == link))
}

#[test]
fn messages_before_damage_are_delivered_and_none_after_it() {
    let (mut one, _, link) = linked();
    let mut damaged = log_message(2);
    *damaged.last_mut().expect("a frame has bytes") ^= 1;
    assert_eq!(
        effects_of(&mut one, link, &[log_message(1), damaged, log_message(3)]),
        ["message 1", "unlinked"]
    );
    assert!(closes(&mut one, link));
}

#[test]
fn data_frames_after_control_frames_are_delivered() {
    let (mut one, _, link) = linked();
    let (beat, address_book) = (
        frame_of(Kind::Heartbeat, 0, &[]),
        frame_of(Kind::Book, 0, AddressBook::default().to_text().as_bytes()),
    );
    assert_eq!(
        effects_of(&mut one, link, &[log_message(1), beat, log_message(2), address_book, log_message(3)]),
        ["message 1", "message 2", "message 3"]
    );
    assert!(!closes(&mut one, link));
}

#[test]
fn messages_of_a_server_are_ignored_after_an_address_book_removes_it() {
    let (mut one, other, link) = linked();
    assert_eq!(
        effects_of(&mut one, link, &[log_message(1), address_book_without(other), log_message(2)]),
        ["message 1", "unlinked"]
    );
    assert!(closes(&mut one, link));
}

#[test]
fn a_waiting_connection_does_not_replace_the_link_of_a_removed_server() {
    for is_removed_by_address_book in [true, false] {
        let ([mut one, mut other], link) = linked_pair(1, 2);
        let server = other.identity.server();
        let waiting = second_connection(&mut one, &mut other);
        assert!(effects_of(&mut one, waiting, &[frame_of(Kind::Consent, 0, &[])]).is_empty());
        assert!(
            one.peers.get(server).is_some_and(|peer| peer.echo_until().is_some()),
            "the link is to answer an echo"
        );
        let effects = match is_removed_by_address_book {
            true => effects_of(&mut one, link, &[address_book_without(server)]),
            false => effects_after(&mut one, Vec::new(), vec![Command::Forget(server)]),
        };
        assert_eq!(effects, ["unlinked"]);
        let mut network_commands = Vec::new();
        one.network_commands(&mut network_commands);
        for id in [link, waiting] {
            assert!(network_commands.contains(&NetworkCommand::Close(id)), "{id:?}: {network_commands:?}");
        }
        assert!(one.sessions.ids().is_empty());
    }
}

#[test]
fn an_undecided_connection_of_a_removed_server_does_not_become_a_link() {
    let ([mut one, mut other], link) = linked_pair(1, 2);
    let server = other.identity.server();
    let undecided = second_connection(&mut one, &mut other);
    assert_eq!(effects_of(&mut one, link, &[address_book_without(server)]), ["unlinked"]);
    assert!(effects_of(&mut one, undecided, &[frame_of(Kind::Consent, 0, &[])]).is_empty());
    assert!(one.sessions.ids().is_empty() && !one.peers.is_linked(server));
}

#[test]
fn data_frames_received_with_the_welcome_are_delivered_after_the_link_opens() {
    let ([mut one, mut other], _) = linked_pair(2, 1);
    // The next process of the same server, whose connection replaces the link.
    other.identity.incarnation += 1;
    other.identity.started_ms += 1;
    let next = second_connection(&mut one, &mut other);
    let welcome = frame_of(Kind::Welcome, 1, &[]);
    assert_eq!(
        effects_of(
            &mut one,
            next,
            &[welcome, log_message(7), frame_of(Kind::Request, 8, b"?"), log_message(9)]
        ),
        ["unlinked", "connected", "message 7", "request 8", "message 9"]
    );
}

#[test]
fn data_frames_before_the_link_opens_end_the_connection() {
    let (mut one, _, link) = linked();
    let hello = crate::link::stream::sample_hello("n2");
    for (number, data) in [vec![], log_message(1), frame_of(Kind::Request, 1, b"?")].into_iter().enumerate() {
        let early = ConnectionId::accepted(100 + number as u64);
        let (now, is_data, mut effects) = (one.schedule.now(), !data.is_empty(), Vec::new());
        let mut network_events = vec![NetworkEvent::Accepted(early, from("n2:1"))];
        one.step(now, &mut network_events, &mut Vec::new(), &|_, _| Ok(()), &mut effects);
        assert!(effects_of(&mut one, early, &[hello.clone(), data]).is_empty());
        assert_eq!(closes(&mut one, early), is_data, "a hello without data frames is accepted");
    }
    assert_eq!(effects_of(&mut one, link, &[log_message(1)]), ["message 1"], "the link is still open");
}

#[test]
fn a_response_to_a_request_of_an_earlier_link_is_not_sent() {
    let (mut one, other, link) = linked();
    let respond = |link| vec![Command::Respond { to: other, link, number: 1, result: Ok(Bytes::new()) }];
    for (requested_on, is_sent) in [(ConnectionId::dialed(1000), false), (link, true)] {
        let (mut network_commands, mut effects) = (Vec::new(), Vec::new());
        one.network_commands(&mut Vec::new());
        let now = one.schedule.now();
        one.step(now, &mut Vec::new(), &mut respond(requested_on), &|_, _| Ok(()), &mut effects);
        one.network_commands(&mut network_commands);
        assert_eq!(network_commands.len(), usize::from(is_sent), "{requested_on:?}");
    }
}
