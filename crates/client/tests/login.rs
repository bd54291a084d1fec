//! Logging in with the server's half of the handshake: a right and a wrong password, and no server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use protocol::handshake::{Accounts, Randomness, ServerHandshake, Step};
use protocol::scram::{Decoy, PasswordRecord};
use rekindle_client::dial::{DialError, dial_and_greet};
use rekindle_client::handshake::{GreetError, Login};

struct OneUser;

impl Accounts for OneUser {
    fn password(&self, user: &str) -> Option<PasswordRecord> {
        (user == "admin").then(|| PasswordRecord::new("secret", [7; 16], 16))
    }
}

/// A server for one connection that reads a few bytes at a time.
fn serve_one() -> (String, JoinHandle<Step>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let randomness = Randomness { nonce: [3; 18], decoy: Decoy::new([9; 32]) };
        let mut handshake = ServerHandshake::new(randomness);
        let (mut input, mut piece) = (Vec::new(), [0; 7]);
        loop {
            let read = stream.read(&mut piece).expect("bytes");
            assert!(read > 0, "the client left");
            input.extend_from_slice(&piece[..read]);
            let mut out = Vec::new();
            let progress = handshake.advance(&input, &OneUser, "9.9.9-test", &mut out);
            input.drain(..progress.used);
            stream.write_all(&out).expect("sent");
            if progress.step != Step::NeedMore {
                return progress.step;
            }
        }
    });
    (address, server)
}

fn log_in(user: &str, password: &str) -> (Result<String, DialError>, Step) {
    let (address, server) = serve_one();
    let login = Login { user: user.to_owned(), password: password.to_owned() };
    let outcome = dial_and_greet(&address, &login);
    (outcome.map(|(_, version)| version), server.join().expect("the server's verdict"))
}

#[test]
fn the_right_password_opens_the_connection() {
    let (outcome, step) = log_in("admin", "secret");
    assert_eq!(outcome.expect("logged in"), "9.9.9-test");
    assert!(matches!(step, Step::Established(_)));
}

#[test]
fn a_wrong_password_names_the_flags_to_check() {
    let (outcome, _) = log_in("admin", "guess");
    let error = outcome.expect_err("refused");
    assert!(error.to_string().contains("--password"), "{error}");
    let DialError::Greeting { source: GreetError::Refused { message, .. }, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(message, "Wrong password");
}

#[test]
fn an_unreachable_server_names_the_flags_to_check() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let login = Login { user: "admin".to_owned(), password: String::new() };
    let outcome = dial_and_greet(&port.to_string(), &login);
    let error = outcome.expect_err("no server").to_string();
    assert!(error.contains(&port.to_string()) && error.contains("--port"), "{error}");
}
