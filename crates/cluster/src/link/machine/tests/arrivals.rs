//! What comes together in one piece, of which a part is not talk or not right.

use bytes::BytesMut;

use super::*;
use crate::link::frame::{Kind, flag};
use crate::link::letter::{self, PeerId};

/// Two servers that are linked; the first, the other's id, and the link as the first knows it.
fn linked() -> (Machine, ServerId, ConnectionId) {
    let mut bench = bench(machine(1, Some(1), &["n2:1"]), machine(2, Some(1), &[]));
    bench.run(Duration::from_secs(1));
    let [one, other] = bench.machines;
    let link = one.peers[&other.me.server].link.expect("they are linked");
    (one, other.me.server, link)
}

/// A frame with one letter to the replica of that number.
fn letter(to: u64) -> Vec<u8> {
    let mut payload = BytesMut::new();
    letter::put(
        &mut payload,
        &Letter {
            group: log::GroupId(1),
            from: PeerId(1),
            to: PeerId(to),
            body: Bytes::from_static(b"text"),
        },
    );
    frame_of(Kind::Letters, to, &payload)
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
    let (now, mut effects) = (machine.now, Vec::new());
    let mut happened = vec![Happening::Arrived(link, Bytes::from(pieces.concat()))];
    machine.step(now, &mut happened, &mut Vec::new(), &|_, _| Ok(()), &mut effects);
    let text = |effect| match effect {
        Effect::Letters(_, letters) => Some(format!("letter {}", letters[0].to.0)),
        Effect::Question { number, .. } => Some(format!("question {number}")),
        Effect::Connected(..) => Some("connected".to_owned()),
        Effect::Unlinked(_) => Some("unlinked".to_owned()),
        _ => None,
    };
    effects.into_iter().filter_map(text).collect()
}

fn closes(machine: &mut Machine, link: ConnectionId) -> bool {
    let mut orders = Vec::new();
    machine.orders(&mut orders);
    orders.iter().any(|order| matches!(order, Order::Close(id) if *id == link))
}

#[test]
fn what_stands_before_damage_is_told_and_nothing_behind_it() {
    let (mut one, _, link) = linked();
    let mut damaged = letter(2);
    *damaged.last_mut().expect("a frame has bytes") ^= 1;
    assert_eq!(told(&mut one, link, &[letter(1), damaged, letter(3)]), ["letter 1", "unlinked"]);
    assert!(closes(&mut one, link));
}

#[test]
fn talk_goes_on_behind_what_is_no_talk() {
    let (mut one, _, link) = linked();
    let (beat, book) =
        (frame_of(Kind::Heartbeat, 0, &[]), frame_of(Kind::Book, 0, Book::default().to_text().as_bytes()));
    assert_eq!(
        told(&mut one, link, &[letter(1), beat, letter(2), book, letter(3)]),
        ["letter 1", "letter 2", "letter 3"]
    );
    assert!(!closes(&mut one, link));
}

#[test]
fn whom_a_book_removes_is_not_heard_any_more() {
    let (mut one, other, link) = linked();
    assert_eq!(told(&mut one, link, &[letter(1), book_without(other), letter(2)]), ["letter 1", "unlinked"]);
    assert!(closes(&mut one, link));
}

#[test]
fn talk_before_there_is_a_link_ends_the_connection() {
    let (mut one, _, link) = linked();
    let hello = crate::link::stream::sample_hello("n2");
    for (number, talk) in [vec![], letter(1), frame_of(Kind::Question, 1, b"?")].into_iter().enumerate() {
        let early = ConnectionId::accepted(100 + number as u64);
        let (now, is_talk, mut effects) = (one.now, !talk.is_empty(), Vec::new());
        let mut happened = vec![Happening::Accepted(early, from("n2:1"))];
        one.step(now, &mut happened, &mut Vec::new(), &|_, _| Ok(()), &mut effects);
        assert!(told(&mut one, early, &[hello.clone(), talk]).is_empty());
        assert_eq!(closes(&mut one, early), is_talk, "with nothing behind it the hello is welcome");
    }
    assert_eq!(told(&mut one, link, &[letter(1)]), ["letter 1"], "the link goes on");
}

#[test]
fn an_answer_to_a_question_of_an_earlier_link_is_not_sent() {
    let (mut one, other, link) = linked();
    let reply = |link| vec![Command::Reply { to: other, link, number: 1, result: Ok(Bytes::new()) }];
    for (asked_on, is_sent) in [(ConnectionId::dialed(1000), false), (link, true)] {
        let (mut orders, mut effects) = (Vec::new(), Vec::new());
        one.orders(&mut Vec::new());
        let now = one.now;
        one.step(now, &mut Vec::new(), &mut reply(asked_on), &|_, _| Ok(()), &mut effects);
        one.orders(&mut orders);
        assert_eq!(orders.len(), usize::from(is_sent), "{asked_on:?}");
    }
}
