//! Responses, written directly into the bytes to send.
//!
//! Each function appends one whole frame. Keys come in the order `t`, `e`, `r`, `b`, `p`, `n`. A datum is printed
//! straight into the frame; the text of a stored row is copied. Source: docs/reql-spec.md section 1.3.

use datum::Datum;
use reql::{Backtrace, ErrorClass, Frame};

use crate::failure::{Failure, FailureKind, class_code};
use crate::frame::{self, OpenFrame, RESPONSE_BYTES_MAX, Token};

/// What kind of stream a response belongs to, sent as `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Note {
    /// A changefeed of a table or a range.
    SequenceFeed = 1,
    /// A changefeed of one document.
    AtomFeed = 2,
    /// A changefeed of the first rows in an order.
    OrderByLimitFeed = 3,
    /// A changefeed that also reports its state.
    IncludesStates = 5,
}

/// Whether more of a stream may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The client requests it with CONTINUE.
    MayFollow,
    /// The token is free for another query.
    Ended,
}

/// One batch of a stream.
#[derive(Clone, Copy, Debug)]
pub struct BatchParts<'a> {
    /// In the stream's order.
    pub items: &'a [Datum],
    /// Whether more batches may follow.
    pub more: More,
    /// What kind of stream it is; empty for anything but a changefeed.
    pub notes: &'a [Note],
    /// The profile, if the query asked for one.
    pub profile: Option<&'a Datum>,
}

/// The server's description, for SERVER_INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The server's uuid.
    pub id: String,
    /// The server's name.
    pub name: String,
    /// Whether the server holds no data and only serves clients.
    pub is_proxy: bool,
}

/// One datum: SUCCESS_ATOM.
pub fn write_atom(out: &mut Vec<u8>, token: Token, value: &Datum, profile: Option<&Datum>) {
    let frame = frame::open(out, token);
    out.extend_from_slice(b"{\"t\":1,\"r\":[");
    value.write_json(out);
    out.push(b']');
    write_profile(out, profile);
    out.push(b'}');
    finish(frame, out);
}

/// A batch of a stream: SUCCESS_PARTIAL, or SUCCESS_SEQUENCE for the last one.
pub fn write_batch(out: &mut Vec<u8>, token: Token, batch: BatchParts<'_>) {
    let frame = frame::open(out, token);
    out.reserve(stored_bytes(batch.items));
    out.extend_from_slice(match batch.more {
        More::MayFollow => b"{\"t\":3,\"r\":[",
        More::Ended => b"{\"t\":2,\"r\":[",
    });
    for (i, item) in batch.items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        item.write_json(out);
    }
    out.push(b']');
    write_profile(out, batch.profile);
    out.extend_from_slice(b",\"n\":[");
    for (i, note) in batch.notes.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.push(b'0' + *note as u8);
    }
    out.extend_from_slice(b"]}");
    finish(frame, out);
}

const TEXTS_START: &[u8] = b"{\"t\":2,\"r\":[";
const TEXTS_END: &[u8] = b"],\"n\":[]}";

/// Bytes of a frame before the items of [`write_texts`].
pub const TEXTS_ROOM_BYTES: usize = frame::HEADER_BYTES + TEXTS_START.len();

/// The only batch of a stream whose items are JSON text already, separated by commas: SUCCESS_SEQUENCE.
///
/// The items follow [`TEXTS_ROOM_BYTES`] reserved bytes in `items`. If `out` is empty, the frame is built around
/// them in place and `items` becomes `out`.
pub fn write_texts(out: &mut Vec<u8>, token: Token, mut items: Vec<u8>) {
    let mut head = Vec::with_capacity(TEXTS_ROOM_BYTES);
    let mut frame = frame::open(&mut head, token);
    head.extend_from_slice(TEXTS_START);
    match items.first_chunk_mut::<TEXTS_ROOM_BYTES>() {
        Some(room) if out.is_empty() => {
            room.copy_from_slice(&head);
            *out = items;
        }
        _ => {
            let items = items.get(TEXTS_ROOM_BYTES..).unwrap_or_default();
            out.reserve(TEXTS_ROOM_BYTES + items.len() + TEXTS_END.len());
            frame = frame::open(out, token);
            out.extend_from_slice(TEXTS_START);
            out.extend_from_slice(items);
        }
    }
    out.extend_from_slice(TEXTS_END);
    finish(frame, out);
}

/// Length of the items that are still stored text, including the comma after each.
fn stored_bytes(items: &[Datum]) -> usize {
    let bytes = |item: &Datum| match item {
        Datum::Object(object) => object.text_bytes().map_or(0, |bytes| bytes + 1),
        _ => 0,
    };
    items.iter().map(bytes).sum()
}

/// An empty last batch of a stream: the response to STOP.
pub fn write_empty_sequence(out: &mut Vec<u8>, token: Token) {
    write_batch(out, token, BatchParts { items: &[], more: More::Ended, notes: &[], profile: None });
}

/// CLIENT_ERROR, COMPILE_ERROR or RUNTIME_ERROR.
pub fn write_failure(out: &mut Vec<u8>, token: Token, failure: &Failure) {
    let frame = frame::open(out, token);
    write_failure_body(out, failure);
    finish(frame, out);
}

/// WAIT_COMPLETE: every earlier noreply query is done.
pub fn write_wait_complete(out: &mut Vec<u8>, token: Token) {
    let frame = frame::open(out, token);
    out.extend_from_slice(b"{\"t\":4,\"r\":[]}");
    finish(frame, out);
}

/// SERVER_INFO: the id and name of the server, and whether it is a proxy.
pub fn write_server_info(out: &mut Vec<u8>, token: Token, info: &ServerInfo) {
    let frame = frame::open(out, token);
    out.extend_from_slice(b"{\"t\":5,\"r\":[{\"id\":");
    write_text(out, &info.id);
    out.extend_from_slice(b",\"name\":");
    write_text(out, &info.name);
    out.extend_from_slice(b",\"proxy\":");
    out.extend_from_slice(if info.is_proxy { b"true" } else { b"false" });
    out.extend_from_slice(b"}]}");
    finish(frame, out);
}

fn write_failure_body(out: &mut Vec<u8>, failure: &Failure) {
    match failure.kind {
        FailureKind::Client => out.extend_from_slice(b"{\"t\":16"),
        FailureKind::Compile => out.extend_from_slice(b"{\"t\":17"),
        FailureKind::Runtime(class) => {
            out.extend_from_slice(b"{\"t\":18,\"e\":");
            out.extend_from_slice(class_code(class).to_string().as_bytes());
        }
    }
    out.extend_from_slice(b",\"r\":[");
    write_text(out, &failure.message);
    out.extend_from_slice(b"],\"b\":[");
    write_frames(out, &failure.backtrace);
    out.extend_from_slice(b"]}");
}

fn write_frames(out: &mut Vec<u8>, backtrace: &Backtrace) {
    for (i, frame) in backtrace.frames().into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        match frame {
            Frame::Argument(index) => out.extend_from_slice(index.to_string().as_bytes()),
            Frame::Optional(name) => write_text(out, name),
        }
    }
}

fn write_profile(out: &mut Vec<u8>, profile: Option<&Datum>) {
    if let Some(profile) = profile {
        out.extend_from_slice(b",\"p\":");
        profile.write_json(out);
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    Datum::from(text).write_json(out);
}

/// Fills in the length. A response too long for a frame becomes an error.
fn finish(frame: OpenFrame, out: &mut Vec<u8>) {
    let Err((frame, length)) = frame.finish(out) else { return };
    let message = format!("Response size ({length}) greater than maximum ({RESPONSE_BYTES_MAX}).");
    write_failure_body(out, &Failure::runtime(ErrorClass::ResourceLimit, message));
    if let Err((frame, _)) = frame.finish(out) {
        frame.discard(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decoded, decode};

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>, Token), expected: &str) {
        let mut out = Vec::new();
        write(&mut out, Token(0x0102_0304_0506_0708));
        let Ok(Decoded::Complete(frame)) = decode(&out) else { panic!("no whole frame in {out:?}") };
        assert_eq!(frame.token, Token(0x0102_0304_0506_0708));
        assert_eq!(std::str::from_utf8(frame.body).unwrap(), expected);
        assert_eq!(frame.total_bytes(), out.len());
    }

    #[test]
    fn an_array_is_one_atom() {
        let value = Datum::from(vec![Datum::from(1), Datum::from(2)]);
        check(|out, token| write_atom(out, token, &value, None), r#"{"t":1,"r":[[1,2]]}"#);
    }

    #[test]
    fn a_profile_stands_before_the_notes() {
        let profile = Datum::empty_array();
        check(
            |out, token| write_atom(out, token, &Datum::Null, Some(&profile)),
            r#"{"t":1,"r":[null],"p":[]}"#,
        );
        let batch = BatchParts { items: &[], more: More::MayFollow, notes: &[], profile: Some(&profile) };
        check(|out, token| write_batch(out, token, batch), r#"{"t":3,"r":[],"p":[],"n":[]}"#);
    }

    #[test]
    fn batches_carry_notes() {
        let items = [Datum::from("a"), Datum::from(true)];
        let notes = [Note::SequenceFeed, Note::IncludesStates];
        let batch = BatchParts { items: &items, more: More::Ended, notes: &notes, profile: None };
        check(|out, token| write_batch(out, token, batch), r#"{"t":2,"r":["a",true],"n":[1,5]}"#);
        check(write_empty_sequence, r#"{"t":2,"r":[],"n":[]}"#);
    }

    #[test]
    fn texts_are_framed_in_place_or_appended() {
        let behind_room = |texts: &[u8]| [&[7; TEXTS_ROOM_BYTES], texts].concat();
        for (texts, expected) in
            [(&br#""a",true"#[..], r#"{"t":2,"r":["a",true],"n":[]}"#), (b"", r#"{"t":2,"r":[],"n":[]}"#)]
        {
            check(|out, token| write_texts(out, token, behind_room(texts)), expected);
            let mut out = Vec::new();
            write_wait_complete(&mut out, Token(1));
            let before = out.clone();
            write_texts(&mut out, Token(2), behind_room(texts));
            let after = out.strip_prefix(&before[..]).expect("what was there stays");
            let Ok(Decoded::Complete(frame)) = decode(after) else { panic!("no whole frame in {after:?}") };
            assert_eq!((frame.token, frame.total_bytes()), (Token(2), after.len()));
            assert_eq!(std::str::from_utf8(frame.body).unwrap(), expected);
        }
    }

    #[test]
    fn failures_carry_class_and_path() {
        let mut backtrace = Backtrace::default();
        backtrace.push_outer(Frame::Optional("in\"dex".into()));
        backtrace.push_outer(Frame::Argument(1));
        let kind = FailureKind::Runtime(ErrorClass::NonExistence);
        let failure = Failure { kind, message: "No\nmore".into(), backtrace };
        check(
            |out, token| write_failure(out, token, &failure),
            r#"{"t":18,"e":3100000,"r":["No\nmore"],"b":[1,"in\"dex"]}"#,
        );
        let failure = Failure::client("Token 3 not in stream cache.");
        check(
            |out, token| write_failure(out, token, &failure),
            r#"{"t":16,"r":["Token 3 not in stream cache."],"b":[]}"#,
        );
    }

    #[test]
    fn responses_without_data() {
        check(write_wait_complete, r#"{"t":4,"r":[]}"#);
        let info = |is_proxy| ServerInfo { id: "x-1".into(), name: "a\tb".into(), is_proxy };
        check(
            |out, token| write_server_info(out, token, &info(false)),
            r#"{"t":5,"r":[{"id":"x-1","name":"a\tb","proxy":false}]}"#,
        );
        check(
            |out, token| write_server_info(out, token, &info(true)),
            r#"{"t":5,"r":[{"id":"x-1","name":"a\tb","proxy":true}]}"#,
        );
    }
}
