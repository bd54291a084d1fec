//! The handshake from the client's side: every version, every refusal, bytes in pieces of any size.

#![allow(clippy::unwrap_used)]

use rekindle_protocol::handshake::{
    Accounts, ClientHandshake, ClientStep, Established, HandshakeFailed, Progress, Randomness,
    ServerHandshake, Step, Version,
};
use rekindle_protocol::scram::{Decoy, PasswordRecord};

struct House;

impl Accounts for House {
    fn password(&self, user: &str) -> Option<PasswordRecord> {
        match user {
            "admin" => Some(PasswordRecord::empty([1; 16])),
            "bob" => Some(PasswordRecord::new("secret", [2; 16], 8)),
            _ => None,
        }
    }
}

fn server() -> ServerHandshake {
    ServerHandshake::new(Randomness { nonce: [9; 18], decoy: Decoy::new([4; 32]) })
}

/// Passes `input` to a new server. Returns its output and its progress.
fn answer(input: &[u8]) -> (String, Progress) {
    let mut out = Vec::new();
    let progress = server().advance(input, &House, "2.4.4", &mut out);
    (String::from_utf8(out).unwrap(), progress)
}

fn new_style(json: &str) -> Vec<u8> {
    let mut bytes = Version::V1_0.magic().to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.push(0);
    bytes
}

fn old_style(version: Version, key: &str, format: u32) -> Vec<u8> {
    let mut bytes = version.magic().to_le_bytes().to_vec();
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes
}

const JSON: u32 = 0x7e69_70c7;
const VERSIONS: &str =
    "{\"max_protocol_version\":0,\"min_protocol_version\":0,\"server_version\":\"2.4.4\",\"success\":true}\0";

/// Connects the client to the server, each message cut into pieces of `piece` bytes.
fn meet(user: &str, password: &str, piece: usize) -> (Result<ClientStep, HandshakeFailed>, Option<Step>) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut server, mut server_input) = (server(), Vec::new());
    let mut client = ClientHandshake::start(user, password, "client+nonce/", &mut to_server);
    let mut client_input = Vec::new();
    let mut server_step = None;
    for _ in 0..10_000 {
        let cut = piece.min(to_server.len());
        server_input.extend(to_server.drain(..cut));
        let progress = server.advance(&server_input, &House, "2.4.4", &mut to_client);
        server_input.drain(..progress.used);
        if progress.step != Step::NeedMore {
            server_step = Some(progress.step);
        }
        let cut = piece.min(to_client.len());
        client_input.extend(to_client.drain(..cut));
        match client.advance(&client_input, &mut to_server) {
            Ok((used, ClientStep::NeedMore)) => drop(client_input.drain(..used)),
            Ok((_, step)) => return (Ok(step), server_step),
            Err(error) => return (Err(error), server_step),
        }
    }
    panic!("the handshake does not end");
}

#[test]
fn client_and_server_agree_however_the_bytes_are_cut() {
    for piece in [1, 2, 7, 100, 10_000] {
        let (client, server) = meet("bob", "secret", piece);
        assert_eq!(
            client,
            Ok(ClientStep::Established { server_version: "2.4.4".into() }),
            "pieces of {piece}"
        );
        assert_eq!(
            server,
            Some(Step::Established(Established { version: Version::V1_0, user: "bob".into() }))
        );
    }
}

#[test]
fn wrong_passwords_and_unknown_users_are_refused_at_the_end() {
    let refused = |code, text: &str| Err(HandshakeFailed::Refused { code, text: text.into() });
    assert_eq!(meet("bob", "Secret", 1000).0, refused(12, "Wrong password"));
    assert_eq!(meet("eve", "secret", 1000).0, refused(17, "Unknown user"));
    assert!(meet("admin", "", 1000).0.is_ok());
}

#[test]
fn versions_are_sent_before_the_first_message() {
    let (sent, progress) = answer(&Version::V1_0.magic().to_le_bytes());
    assert_eq!(sent, VERSIONS);
    assert_eq!(progress, Progress { used: 4, step: Step::NeedMore });
}

#[test]
fn a_query_behind_the_handshake_is_left_alone() {
    let mut bytes = old_style(Version::V0_4, "", JSON);
    let handshake_bytes = bytes.len();
    bytes.extend_from_slice(b"query");
    let (sent, progress) = answer(&bytes);
    assert_eq!(sent, "SUCCESS\0");
    assert_eq!(progress.used, handshake_bytes);
    let established = Established { version: Version::V0_4, user: "admin".into() };
    assert_eq!(progress.step, Step::Established(established));
}

#[track_caller]
fn refused(input: &[u8], expected: &str) {
    let (sent, progress) = answer(input);
    assert_eq!(sent.strip_prefix(VERSIONS).unwrap_or(&sent), expected);
    assert!(matches!(progress.step, Step::Refused(_)), "{:?}", progress.step);
}

#[test]
fn each_old_refusal_has_its_line() {
    let unknown = "ERROR: Received an unsupported protocol version. This port is for RethinkDB queries. \
                   Does your client driver version not match the server?\n\0";
    refused(b"GET / HTTP/1.1\r\n", unknown);
    let protobuf = "ERROR: The PROTOBUF client protocol is no longer supported\n\0";
    refused(&0x3f61_ba36u32.to_le_bytes(), protobuf);
    refused(&0x7230_81e1u32.to_le_bytes(), protobuf);
    refused(&old_style(Version::V0_3, "", 0x271f_fc41), protobuf);
    refused(&old_style(Version::V0_3, "", 17), "ERROR: Unrecognized protocol specified: '17'\n\0");
    refused(&old_style(Version::V0_3, "wrong", JSON), "ERROR: Incorrect authorization key.\n\0");
    let mut long = Version::V0_4.magic().to_le_bytes().to_vec();
    long.extend_from_slice(&2049u32.to_le_bytes());
    refused(&long, "ERROR: Client provided an authorization key that is too long.\n\0");
}

#[test]
fn each_new_refusal_has_its_code() {
    let first = |scram: &str| {
        format!(
            r#"{{"protocol_version":0,"authentication_method":"SCRAM-SHA-256","authentication":"{scram}"}}"#
        )
    };
    let cases = [
        ("[1]".to_owned(), 1, "Expected a number for `protocol_version`."),
        (r#"{"protocol_version":"0"}"#.into(), 1, "Expected a number for `protocol_version`."),
        (r#"{"protocol_version":1}"#.into(), 2, "Unsupported `protocol_version`."),
        (r#"{"protocol_version":0}"#.into(), 3, "Expected a string for `authentication_method`."),
        (
            r#"{"protocol_version":0,"authentication_method":"PLAIN"}"#.into(),
            4,
            "Unsupported `authentication_method`.",
        ),
        (
            r#"{"protocol_version":0,"authentication_method":"SCRAM-SHA-256","authentication":1}"#.into(),
            5,
            "Expected a string for `authentication`.",
        ),
        ("x".repeat(2048), 7, "Limited read buffer size."),
        ("{".into(), 8, "Invalid JSON object."),
        (r#"{"a":1,"a":1}"#.into(), 9, "Failed to convert JSON to datum."),
        (first("n,,nonsense"), 10, "Invalid encoding"),
        (first("n,,m=x,n=bob,r=x"), 11, "Extensions not supported"),
        (first("y,,n=bob,r=x"), 15, "Channel binding is not supported"),
        (first("n,,n==,r=x"), 18, "Invalid username encoding"),
        (first("n,,n=,r=x"), 18, "Empty username"),
    ];
    for (json, code, text) in cases {
        refused(
            &new_style(&json),
            &format!("{{\"error\":\"{text}\",\"error_code\":{code},\"success\":false}}\0"),
        );
    }
}

#[test]
fn a_message_of_2048_bytes_with_its_nul_is_read() {
    let padded = format!("{}{}", r#"{"protocol_version":1}"#, " ".repeat(2047 - 22));
    refused(
        &new_style(&padded),
        "{\"error\":\"Unsupported `protocol_version`.\",\"error_code\":2,\"success\":false}\0",
    );
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let seed = 7u64;
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let starts = [old_style(Version::V0_4, "key", JSON), new_style(r#"{"protocol_version":0}"#), vec![]];
    for _ in 0..20_000 {
        let mut bytes = starts[next() % starts.len()].clone();
        for _ in 0..next() % 4 {
            let at = next() % (bytes.len() + 1);
            bytes.insert(at, (next() % 256) as u8);
        }
        let (_, progress) = answer_lossy(&bytes);
        assert!(progress.used <= bytes.len(), "seed {seed}, input {bytes:?}");
    }
}

fn answer_lossy(input: &[u8]) -> (Vec<u8>, Progress) {
    let mut out = Vec::new();
    let progress = server().advance(input, &House, "2.4.4", &mut out);
    (out, progress)
}
