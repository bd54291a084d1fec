//! The client's side of the V1_0 handshake, for benchmarks and tests.

use serde_json::{Map, Value};

use super::Version;
use super::message::{self, Cut};
use crate::scram::{ClientExchange, ClientProof, ServerRefused};

/// Why a client's handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeFailed {
    /// The server refused the connection.
    #[error("{text} (code {code})")]
    Refused {
        /// The server's error code; 0 if it sent none.
        code: u64,
        /// The server's error message.
        text: String,
    },
    /// The server sent a message that the protocol does not allow at this point.
    #[error("the server's handshake message cannot be read: {0:?}")]
    Unreadable(String),
    /// The server does not support version 0 of the handshake protocol.
    #[error("the server speaks other protocol versions only")]
    WrongVersion,
    /// The password exchange failed on the client's side.
    #[error(transparent)]
    Scram(#[from] ServerRefused),
}

/// The progress of a client's handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// The caller sends the output and waits for more bytes.
    NeedMore,
    /// Queries may be sent. The server reported this version.
    Established {
        /// Informational.
        server_version: String,
    },
}

/// The client's handshake on one connection.
pub struct ClientHandshake {
    stage: ClientStage,
    server_version: String,
}

enum ClientStage {
    Versions(ClientExchange),
    Challenge(ClientExchange),
    Signature(ClientProof),
    Over,
}

impl ClientHandshake {
    /// Appends the first packet to `out`: the protocol version and the first message together.
    /// `nonce`: random printable text without commas.
    #[must_use]
    pub fn start(user: &str, password: &str, nonce: &str, out: &mut Vec<u8>) -> ClientHandshake {
        let exchange = ClientExchange::new(user, password, nonce);
        out.extend_from_slice(&Version::V1_0.magic().to_le_bytes());
        let body = serde_json::json!({
            "protocol_version": 0,
            "authentication_method": "SCRAM-SHA-256",
            "authentication": exchange.client_first(),
        });
        out.extend_from_slice(body.to_string().as_bytes());
        out.push(0);
        ClientHandshake { stage: ClientStage::Versions(exchange), server_version: String::new() }
    }

    /// Processes as much of `input` as possible and appends its output to `out`. Returns the number of bytes
    /// consumed and the progress of the handshake.
    pub fn advance(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ClientStep), HandshakeFailed> {
        let mut used_total = 0;
        while let Cut::Message { text, used } = message::cut(input.get(used_total..).unwrap_or_default()) {
            used_total += used;
            let object = read_success(text)?;
            self.stage = match std::mem::replace(&mut self.stage, ClientStage::Over) {
                ClientStage::Versions(exchange) => {
                    self.server_version = read_versions(&object)?;
                    ClientStage::Challenge(exchange)
                }
                ClientStage::Challenge(exchange) => {
                    let proof = exchange.prove(read_authentication(&object)?)?;
                    write_proof(out, proof.client_final());
                    ClientStage::Signature(proof)
                }
                ClientStage::Signature(proof) => {
                    proof.check(read_authentication(&object)?)?;
                    let server_version = std::mem::take(&mut self.server_version);
                    return Ok((used_total, ClientStep::Established { server_version }));
                }
                ClientStage::Over => return Err(unreadable(text)),
            };
        }
        Ok((used_total, ClientStep::NeedMore))
    }
}

fn read_success(text: &[u8]) -> Result<Map<String, Value>, HandshakeFailed> {
    let Ok(Value::Object(object)) = serde_json::from_slice(text) else { return Err(unreadable(text)) };
    if object.get("success").and_then(Value::as_bool) == Some(true) {
        return Ok(object);
    }
    Err(HandshakeFailed::Refused {
        code: object.get("error_code").and_then(Value::as_u64).unwrap_or_default(),
        text: object.get("error").and_then(Value::as_str).unwrap_or("no reason given").to_owned(),
    })
}

fn read_versions(object: &Map<String, Value>) -> Result<String, HandshakeFailed> {
    let bound = |name: &str| object.get(name).and_then(Value::as_i64);
    match (bound("min_protocol_version"), bound("max_protocol_version")) {
        (Some(min), Some(max)) if min <= 0 && 0 <= max => {}
        _ => return Err(HandshakeFailed::WrongVersion),
    }
    Ok(object.get("server_version").and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn read_authentication(object: &Map<String, Value>) -> Result<&str, HandshakeFailed> {
    object
        .get("authentication")
        .and_then(Value::as_str)
        .ok_or(HandshakeFailed::Scram(ServerRefused::Unreadable))
}

fn write_proof(out: &mut Vec<u8>, client_final: &str) {
    out.extend_from_slice(serde_json::json!({ "authentication": client_final }).to_string().as_bytes());
    out.push(0);
}

fn unreadable(text: &[u8]) -> HandshakeFailed {
    HandshakeFailed::Unreadable(String::from_utf8_lossy(text).into_owned())
}
