//! What arrives in one piece, of which a part is not talk or not right, and what becomes of the connections of a server
//! that is removed.

use bytes::BytesMut;

use super::*;
use crate::link::frame::{Kind, flag};
use crate::link::log_message::{self, PeerId};

/// Two servers that are linked; the first, the other's id, and the link as the first knows it.
fn linked() -> (Machine, ServerId, ConnectionId) {
    let ([one, other], link) = linked_pair(1, 2);
    (one, other.me.server, link)
}

/// Two servers of those numbers that are linked, and the link as the first knows it.
fn linked_pair(one: u128, other: u128) -> ([Machine; 2], ConnectionId) {
    let mut bench = bench(machine(one, Some(1), &[&format!("n{other}:1")]), machine(other, Some(1), &[]));
    bench.run(Duration::from_secs(1));
    let link = bench.machines[0].peers[&bench.machines[1].me.server].link.expect("they are linked");
    (bench.machines, link)
}

/// Another connection that `other` has dialed to `one`, on which both have said who they are.
fn second_connection(one: &mut Machine, other: &mut Machine) -> ConnectionId {
    let id = ConnectionId::accepted(100);
    other.send_hello(id);
    let Some(NetworkCommand::Send { bytes, .. }) = other.orders.pop() else { panic!("there is a hello") };
    let (now, mut happened) = (one.now, vec![NetworkEvent::Accepted(id, from("10.0.0.5:7"))]);
    one.step(now, &mut happened, &mut Vec::new(), &|_, _| Ok(()), &mut Vec::new());
    assert!(told(one, id, &[bytes.concat()]).is_empty());
    assert!(!closes(one, id), "it is decided about");
    id
}

/// A frame with one log_message to the replica of that number.
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

/// A book that says that `server` was removed.
fn book_without(server: ServerId) -> Vec<u8> {
    let mut book = Book::default();
    assert!(book.remove(server));
    frame_of(Kind::Book, 0, book.to_text().as_bytes())
}

/// What `machine` tells when `pieces` arrive as one; notes and books that are kept left out.
fn told(machine: &mut Machine, link: ConnectionId, pieces: &[Vec<u8>]) -> Vec<String> {
    told_after(machine, vec![NetworkEvent::Arrived(link, Bytes::from(pieces.concat()))], Vec::new())
}

/// The same when that has happened and is wanted.
fn told_after(
    machine: &mut Machine,
    mut happened: Vec<NetworkEvent>,
    mut wanted: Vec<Command>,
) -> Vec<String> {
    let (now, mut effects) = (machine.now, Vec::new());
    machine.step(now, &mut happened, &mut wanted, &|_, _| Ok(()), &mut effects);
    let text = |effect| match effect {
        Effect::LogMessages(_, log_messages) => Some(format!("log_message {}", log_messages[0].to.0)),
        Effect::Request { number, .. } => Some(format!("request {number}")),
        Effect::Connected(..) => Some("connected".to_owned()),
        Effect::Unlinked(_) => Some("unlinked".to_owned()),
        _ => None,
    };
    effects.into_iter().filter_map(text).collect()
}

fn closes(machine: &mut Machine, link: ConnectionId) -> bool {
    let mut orders = Vec::new();
    machine.orders(&mut orders);
    orders.iter().any(|order| matches!(order, NetworkCommand::Close(id) if *id == link))
}

#[test]
fn what_stands_before_damage_is_told_and_nothing_behind_it() {
    let (mut one, _, link) = linked();
    let mut damaged = log_message(2);
    *damaged.last_mut().expect("a frame has bytes") ^= 1;
    assert_eq!(
        told(&mut one, link, &[log_message(1), damaged, log_message(3)]),
        ["log_message 1", "unlinked"]
    );
    assert!(closes(&mut one, link));
}

#[test]
fn talk_goes_on_behind_what_is_no_talk() {
    let (mut one, _, link) = linked();
    let (beat, book) =
        (frame_of(Kind::Heartbeat, 0, &[]), frame_of(Kind::Book, 0, Book::default().to_text().as_bytes()));
    assert_eq!(
        told(&mut one, link, &[log_message(1), beat, log_message(2), book, log_message(3)]),
        ["log_message 1", "log_message 2", "log_message 3"]
    );
    assert!(!closes(&mut one, link));
}

#[test]
fn whom_a_book_removes_is_not_heard_any_more() {
    let (mut one, other, link) = linked();
    assert_eq!(
        told(&mut one, link, &[log_message(1), book_without(other), log_message(2)]),
        ["log_message 1", "unlinked"]
    );
    assert!(closes(&mut one, link));
}

#[test]
fn whoever_waits_for_the_place_of_a_link_does_not_get_it_once_the_server_is_removed() {
    for is_told_by_book in [true, false] {
        let ([mut one, mut other], link) = linked_pair(1, 2);
        let server = other.me.server;
        let waiting = second_connection(&mut one, &mut other);
        assert!(told(&mut one, waiting, &[frame_of(Kind::Consent, 0, &[])]).is_empty());
        assert!(one.peers[&server].probe.is_some(), "the link is to prove itself");
        let told = match is_told_by_book {
            true => told(&mut one, link, &[book_without(server)]),
            false => told_after(&mut one, Vec::new(), vec![Command::Forget(server)]),
        };
        assert_eq!(told, ["unlinked"]);
        let mut orders = Vec::new();
        one.orders(&mut orders);
        for id in [link, waiting] {
            assert!(orders.contains(&NetworkCommand::Close(id)), "{id:?}: {orders:?}");
        }
        assert!(one.sessions.is_empty());
    }
}

#[test]
fn a_removed_server_about_which_is_decided_does_not_get_a_link() {
    let ([mut one, mut other], link) = linked_pair(1, 2);
    let server = other.me.server;
    let undecided = second_connection(&mut one, &mut other);
    assert_eq!(told(&mut one, link, &[book_without(server)]), ["unlinked"]);
    assert!(told(&mut one, undecided, &[frame_of(Kind::Consent, 0, &[])]).is_empty());
    assert!(one.sessions.is_empty() && one.peers[&server].link.is_none());
}

#[test]
fn talk_that_comes_with_the_welcome_is_told_after_the_link() {
    let ([mut one, mut other], _) = linked_pair(2, 1);
    // The next process of the same server, whose connection takes the place of the link.
    other.incarnation += 1;
    other.started_ms += 1;
    let next = second_connection(&mut one, &mut other);
    let welcome = frame_of(Kind::Welcome, 1, &[]);
    assert_eq!(
        told(&mut one, next, &[welcome, log_message(7), frame_of(Kind::Request, 8, b"?"), log_message(9)]),
        ["unlinked", "connected", "log_message 7", "request 8", "log_message 9"]
    );
}

#[test]
fn talk_before_there_is_a_link_ends_the_connection() {
    let (mut one, _, link) = linked();
    let hello = crate::link::stream::sample_hello("n2");
    for (number, talk) in [vec![], log_message(1), frame_of(Kind::Request, 1, b"?")].into_iter().enumerate() {
        let early = ConnectionId::accepted(100 + number as u64);
        let (now, is_talk, mut effects) = (one.now, !talk.is_empty(), Vec::new());
        let mut happened = vec![NetworkEvent::Accepted(early, from("n2:1"))];
        one.step(now, &mut happened, &mut Vec::new(), &|_, _| Ok(()), &mut effects);
        assert!(told(&mut one, early, &[hello.clone(), talk]).is_empty());
        assert_eq!(closes(&mut one, early), is_talk, "with nothing behind it the hello is welcome");
    }
    assert_eq!(told(&mut one, link, &[log_message(1)]), ["log_message 1"], "the link goes on");
}

#[test]
fn an_answer_to_a_question_of_an_earlier_link_is_not_sent() {
    let (mut one, other, link) = linked();
    let reply = |link| vec![Command::Respond { to: other, link, number: 1, result: Ok(Bytes::new()) }];
    for (asked_on, is_sent) in [(ConnectionId::dialed(1000), false), (link, true)] {
        let (mut orders, mut effects) = (Vec::new(), Vec::new());
        one.orders(&mut Vec::new());
        let now = one.now;
        one.step(now, &mut Vec::new(), &mut reply(asked_on), &|_, _| Ok(()), &mut effects);
        one.orders(&mut orders);
        assert_eq!(orders.len(), usize::from(is_sent), "{asked_on:?}");
    }
}
