//! A connection to a program by the driver protocol, one query at a time.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context;
use client::answer::{self, Failure, FailureKind, PARTIAL};
use client::dial::dial_and_greet;
use client::frame;
use client::handshake::Login;
use serde_json::json;

use crate::fault::Class;
use crate::generate::Query;
use crate::value::Val;
use crate::verdict::Answer;

/// A program without a response for this long hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one read.
const CHUNK_BYTES: usize = 64 * 1024;

/// A connection of the user `admin` without a password.
pub struct Wire {
    stream: TcpStream,
    token: u64,
    received: Vec<u8>,
}

impl Wire {
    /// Connects to `address`, a host and a port.
    pub fn connect(address: &str) -> anyhow::Result<Wire> {
        let login = Login { user: "admin".to_owned(), password: String::new() };
        let (stream, _) = dial_and_greet(address, &login)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(Wire { stream, token: 0, received: Vec::new() })
    }

    /// The result of the program, and the text of its error if it is one. A stream is read to its end.
    /// Fails if the program rejects the query or fails itself.
    pub fn run(&mut self, query: &Query) -> anyhow::Result<(Answer, String)> {
        self.token += 1;
        let mut answer = self.exchange(&json!([1, query.term, query.options()]).to_string())?;
        let mut items = Vec::new();
        loop {
            match answer {
                Err(failure) => return Ok((Answer::Fault(class(&failure)?), failure.message)),
                Ok(part) => {
                    items.extend(part.r.iter().map(Val::of_json));
                    match part.t {
                        PARTIAL => answer = self.exchange("[2]")?,
                        answer::SEQUENCE => return Ok((Answer::Stream(items), String::new())),
                        _ => {
                            let value = items.pop().context("an answer without a value")?;
                            return Ok((Answer::Atom(value), String::new()));
                        }
                    }
                }
            }
        }
    }

    fn exchange(&mut self, body: &str) -> anyhow::Result<Result<answer::Answer, Failure>> {
        let mut bytes = Vec::new();
        frame::push(&mut bytes, self.token, |out| out.extend_from_slice(body.as_bytes()));
        self.stream.write_all(&bytes)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if let Some(found) = frame::first(&self.received) {
                let (parsed, used) = (answer::parse(found.body), found.bytes());
                self.received.drain(..used);
                return Ok(parsed);
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(Error::from(ErrorKind::UnexpectedEof).into()),
                n => self.received.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

fn class(failure: &Failure) -> anyhow::Result<Class> {
    Ok(match failure.kind {
        FailureKind::QueryLogic => Class::Logic,
        FailureKind::NonExistence => Class::NonExistence,
        FailureKind::ResourceLimit => Class::Resource,
        FailureKind::User => Class::User,
        FailureKind::OpFailed => Class::OpFailed,
        _ => anyhow::bail!("{failure}"),
    })
}
