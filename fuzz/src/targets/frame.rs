//! The bytes of a client connection: handshake, frames and the envelope of a query.

use protocol::handshake::{Accounts, Randomness, ServerHandshake, Step};
use protocol::scram::{Decoy, PasswordRecord};
use protocol::{Token, frame, request};

use super::{Outcome, Target, stem};

pub struct Frame;

/// One user without a password, as on a new server.
struct OnlyAdmin;

impl Accounts for OnlyAdmin {
    fn password(&self, user: &str) -> Option<PasswordRecord> {
        (user == "admin").then(|| PasswordRecord::empty([7; 16]))
    }
}

impl Target for Frame {
    fn name(&self) -> &'static str {
        "frame"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut query = Vec::new();
        frame::write(&mut query, Token(1), br#"[1,[15,[[14,["test"]],"t"]],{"noreply":true}]"#);
        frame::write(&mut query, Token(2), b"[2]");
        let old = [&0x400c_2d20_u32.to_le_bytes()[..], &[0; 4], &0x7e69_70c7_u32.to_le_bytes()].concat();
        let mut new = 0x34c2_bdc3_u32.to_le_bytes().to_vec();
        new.extend_from_slice(br#"{"protocol_version":0,"authentication_method":"SCRAM-SHA-256","authentication":"n,,n=admin,r=abc"}"#);
        new.push(0);
        let mut both = new.clone();
        both.extend_from_slice(br#"{"authentication":"c=biws,r=abcBwcHBwcHBwcHBwcHBwcHBwcH,p=AAAA"}"#);
        both.push(0);
        vec![query, old, new, both]
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"\xc3\xbd\xc2\x34",
            b"\x20\x2d\x0c\x40",
            b"\x3e\xe8\x75\x5f",
            b"\xc7\x70\x69\x7e",
            b"\x41\xfc\x1f\x27",
            b"\0",
            b"n,,n=admin,r=abc",
            b"\"protocol_version\":0",
            b"\"authentication\":",
            b"\"authentication_method\":\"SCRAM-SHA-256\"",
            b"c=biws,r=abc",
            b",p=",
            b"=2C",
            b"=3D",
            b"[1,",
            b"{\"noreply\":true}",
            b"\x0c\0\0\0",
        ]
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let handshake = check_handshake(input);
        let framed = check_frames(input);
        let asked = request::query_type(input).map_err(|_| ());
        let silent = request::asks_for_noreply(input);
        Outcome::of((handshake, framed, format!("{asked:?}"), silent))
    }
}

/// The end of the handshake, and the size of the response. They must not depend on how the bytes are divided.
fn check_handshake(input: &[u8]) -> (String, usize) {
    let whole = run_handshake(input, input.len().max(1));
    for chunk_bytes in [1, 7] {
        if input.len() < 4096 {
            assert_eq!(run_handshake(input, chunk_bytes), whole, "in pieces of {chunk_bytes} bytes");
        }
    }
    let (step, out) = whole;
    let step = match step {
        Step::NeedMore => "more".to_owned(),
        Step::Established(established) => format!("{:?}", established.version),
        Step::Refused(why) => stem(&why).to_owned(),
    };
    (step, out.len().min(1000) / 100)
}

fn run_handshake(input: &[u8], chunk_bytes: usize) -> (Step, Vec<u8>) {
    let randomness = Randomness { nonce: [7; 18], decoy: Decoy::new([9; 32]) };
    let mut handshake = ServerHandshake::new(randomness);
    let mut out = Vec::new();
    let mut waiting = Vec::new();
    for chunk in input.chunks(chunk_bytes) {
        waiting.extend_from_slice(chunk);
        let progress = handshake.advance(&waiting, &OnlyAdmin, "fuzz", &mut out);
        assert!(progress.used <= waiting.len(), "uses no more than there is");
        waiting.drain(..progress.used);
        if progress.step != Step::NeedMore {
            return (progress.step, out);
        }
    }
    (Step::NeedMore, out)
}

/// The number of frames (roughly), and whether an oversized one follows.
fn check_frames(input: &[u8]) -> (usize, bool) {
    let mut rest = input;
    let mut count = 0;
    loop {
        match frame::decode(rest) {
            Err(_) => return (count.min(4), true),
            Ok(frame::Decoded::Incomplete { frame_bytes }) => {
                assert!(frame_bytes > rest.len(), "an incomplete frame is longer than its bytes");
                let all = frame::decode_all(input).map(|all| (all.frames, all.bytes_used));
                assert_eq!(all, Ok((count, input.len() - rest.len())));
                return (count.min(4), false);
            }
            Ok(frame::Decoded::Complete(found)) => {
                let mut again = Vec::new();
                frame::write(&mut again, found.token, found.body);
                assert_eq!(again, rest[..found.total_bytes()], "a frame is written as it was read");
                rest = &rest[found.total_bytes()..];
                count += 1;
            }
        }
    }
}
