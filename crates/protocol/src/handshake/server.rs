//! The server's side of the handshake: reads the version, authenticates the client, reports errors.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::message::{self, Cut};
use super::{
    FORMAT_JSON, FORMAT_PROTOBUF, LegacyRefusal, MAGIC_PROTOBUF, MESSAGE_BYTES_MAX, Refusal, Version,
};
use crate::scram::{Challenge, Decoy, PasswordRecord, ServerExchange};

/// The accounts against which clients are authenticated.
pub trait Accounts {
    /// The password record of `user`, or `None` if there is no such user. Must be a lookup in memory.
    fn password(&self, user: &str) -> Option<PasswordRecord>;
}

/// The random bytes that a handshake needs.
pub struct Randomness {
    /// Appended to the client's nonce; fresh for every connection.
    pub nonce: [u8; 18],
    /// Hides which users exist; the same for every connection.
    pub decoy: Decoy,
}

/// A handshake that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// The version of the protocol that the client uses.
    pub version: Version,
    /// The user with whose permissions queries run.
    pub user: String,
}

/// The progress of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    NeedMore,
    /// The rest of the connection consists of queries.
    Established(Established),
    /// The connection is closed after the output is sent. The text is for the server's log.
    Refused(String),
}

/// The result of [`ServerHandshake::advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are consumed; the caller passes the others again.
    pub used: usize,
    /// The progress of the handshake.
    pub step: Step,
}

/// The server's handshake on one connection.
pub struct ServerHandshake {
    stage: ServerStage,
    randomness: Randomness,
}

enum ServerStage {
    Magic,
    Key { version: Version },
    FirstMessage,
    FinalMessage(Box<ServerExchange>),
    Over,
}

/// The outcome of one stage, with the number of bytes used.
enum StageOutcome {
    NeedMore,
    On { used: usize, next: ServerStage },
    Established { used: usize, established: Established },
}

/// A refusal, with or without JSON.
#[derive(Debug, thiserror::Error)]
enum AnyRefusal {
    #[error(transparent)]
    Legacy(#[from] LegacyRefusal),
    #[error(transparent)]
    Json(#[from] Refusal),
}

impl ServerHandshake {
    /// A handshake that has received no bytes.
    #[must_use]
    pub fn new(randomness: Randomness) -> ServerHandshake {
        ServerHandshake { stage: ServerStage::Magic, randomness }
    }

    /// Processes as much of `input` as possible and appends its output to `out`. V1_0 clients receive
    /// `server_version`. After a step other than [`Step::NeedMore`] the handshake is over and uses no more bytes.
    pub fn advance(
        &mut self,
        input: &[u8],
        accounts: &dyn Accounts,
        server_version: &str,
        out: &mut Vec<u8>,
    ) -> Progress {
        let mut used_total = 0;
        loop {
            let rest = input.get(used_total..).unwrap_or_default();
            match self.step(rest, accounts, server_version, out) {
                Ok(StageOutcome::NeedMore) => return Progress { used: used_total, step: Step::NeedMore },
                Ok(StageOutcome::On { used, next }) => {
                    used_total += used;
                    self.stage = next;
                }
                Ok(StageOutcome::Established { used, established }) => {
                    self.stage = ServerStage::Over;
                    return Progress { used: used_total + used, step: Step::Established(established) };
                }
                Err(stop) => {
                    self.stage = ServerStage::Over;
                    match &stop {
                        AnyRefusal::Legacy(refusal) => refusal.write(out),
                        AnyRefusal::Json(refusal) => refusal.write(out),
                    }
                    return Progress { used: used_total, step: Step::Refused(stop.to_string()) };
                }
            }
        }
    }

    fn step(
        &mut self,
        input: &[u8],
        accounts: &dyn Accounts,
        version: &str,
        out: &mut Vec<u8>,
    ) -> Result<StageOutcome, AnyRefusal> {
        match &mut self.stage {
            ServerStage::Magic => read_magic(input, version, out),
            ServerStage::Key { version } => read_key(*version, input, accounts, out),
            ServerStage::FirstMessage => {
                let nonce = BASE64.encode(self.randomness.nonce);
                Ok(read_first(input, accounts, &self.randomness.decoy, &nonce, out)?)
            }
            ServerStage::FinalMessage(exchange) => {
                let Cut::Message { text, used } = message::cut_client(input)? else {
                    return Ok(StageOutcome::NeedMore);
                };
                let object = message::parse(text)?;
                let client_final = message::authentication(&object)?;
                let (user, server_final) = exchange.finish(client_final).map_err(Refusal::from)?;
                message::write_authentication(out, &server_final);
                Ok(StageOutcome::Established {
                    used,
                    established: Established { version: Version::V1_0, user },
                })
            }
            ServerStage::Over => Ok(StageOutcome::NeedMore),
        }
    }
}

fn read_magic(input: &[u8], server_version: &str, out: &mut Vec<u8>) -> Result<StageOutcome, AnyRefusal> {
    let Some((magic, _)) = read_u32(input) else { return Ok(StageOutcome::NeedMore) };
    let next = match magic {
        _ if magic == Version::V1_0.magic() => {
            write_versions(out, server_version);
            ServerStage::FirstMessage
        }
        _ if magic == Version::V0_4.magic() => ServerStage::Key { version: Version::V0_4 },
        _ if magic == Version::V0_3.magic() => ServerStage::Key { version: Version::V0_3 },
        _ if MAGIC_PROTOBUF.contains(&magic) => return Err(LegacyRefusal::Protobuf.into()),
        _ => return Err(LegacyRefusal::UnknownVersion.into()),
    };
    Ok(StageOutcome::On { used: 4, next })
}

fn write_versions(out: &mut Vec<u8>, server_version: &str) {
    let body = serde_json::json!({
        "max_protocol_version": 0, "min_protocol_version": 0, "server_version": server_version, "success": true,
    });
    out.extend_from_slice(body.to_string().as_bytes());
    out.push(0);
}

/// Reads the length of the key, the key and the wire format together.
fn read_key(
    version: Version,
    input: &[u8],
    accounts: &dyn Accounts,
    out: &mut Vec<u8>,
) -> Result<StageOutcome, AnyRefusal> {
    let Some((length, rest)) = read_u32(input) else { return Ok(StageOutcome::NeedMore) };
    let length = length as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(LegacyRefusal::KeyTooLong.into());
    }
    let Some((key, rest)) = rest.split_at_checked(length) else { return Ok(StageOutcome::NeedMore) };
    let Some((format, _)) = read_u32(rest) else { return Ok(StageOutcome::NeedMore) };
    match format {
        FORMAT_JSON => {}
        FORMAT_PROTOBUF => return Err(LegacyRefusal::Protobuf.into()),
        other => return Err(LegacyRefusal::UnknownFormat(other).into()),
    }
    let record = accounts.password("admin");
    let right = match (record, std::str::from_utf8(key)) {
        (Some(record), Ok(key)) => record.matches(key),
        _ => false,
    };
    if !right {
        return Err(LegacyRefusal::WrongKey.into());
    }
    out.extend_from_slice(b"SUCCESS\0");
    let established = Established { version, user: "admin".to_owned() };
    Ok(StageOutcome::Established { used: 4 + length + 4, established })
}

fn read_first(
    input: &[u8],
    accounts: &dyn Accounts,
    decoy: &Decoy,
    nonce: &str,
    out: &mut Vec<u8>,
) -> Result<StageOutcome, Refusal> {
    let Cut::Message { text, used } = message::cut_client(input)? else { return Ok(StageOutcome::NeedMore) };
    let object = message::parse(text)?;
    let challenge = Challenge::parse(message::first_authentication(&object)?)?;
    let record = accounts.password(challenge.user());
    let exchange = challenge.answer(record, decoy, nonce);
    message::write_authentication(out, exchange.server_first());
    Ok(StageOutcome::On { used, next: ServerStage::FinalMessage(Box::new(exchange)) })
}

fn read_u32(input: &[u8]) -> Option<(u32, &[u8])> {
    input.split_first_chunk::<4>().map(|(number, rest)| (u32::from_le_bytes(*number), rest))
}
