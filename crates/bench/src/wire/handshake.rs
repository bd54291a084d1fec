//! The V1_0 handshake on a blocking socket.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::scram::Conversation;
use crate::chance::Chance;

const MAGIC_V1_0: u32 = 0x34c2_bdc3;
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Who logs in.
#[derive(Clone, Debug)]
pub struct Login {
    /// User name.
    pub user: String,
    /// Password; empty for a user without one.
    pub password: String,
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// Nothing listens there, or the line broke.
    #[error("the connection broke during the handshake")]
    Io(#[from] std::io::Error),
    /// The user must be told to look at `--user` and `--password`.
    #[error("the server refused the login of user `{user}`: {message}")]
    Refused {
        /// Who tried.
        user: String,
        /// What the server said.
        message: String,
    },
    /// Something else listens there.
    #[error("this is not a server of the RethinkDB protocol (it answered {found:?})")]
    NotOurProtocol {
        /// The start of what it sent.
        found: String,
    },
    /// The other side does not know the password it should know.
    #[error("the server could not prove that it knows the password")]
    FalseServer,
}

/// Logs in; answers the server's version text.
///
/// Blocking: two round trips. Afterwards the stream carries frames.
pub fn greet(
    stream: &mut TcpStream,
    login: &Login,
    chance: &mut Chance,
) -> Result<String, GreetError> {
    let talk = Conversation::start(&login.user, chance);
    let mut hello = MAGIC_V1_0.to_le_bytes().to_vec();
    push_message(
        &mut hello,
        &json!({
            "protocol_version": 0,
            "authentication_method": "SCRAM-SHA-256",
            "authentication": talk.first_message(),
        }),
    );
    stream.write_all(&hello)?;
    let version = read_message(stream, login)?;
    let challenge = read_message(stream, login)?;
    let challenge = challenge["authentication"].as_str().unwrap_or_default();
    let proof = talk.prove(&login.password, challenge).ok_or(GreetError::FalseServer)?;

    let mut last = Vec::new();
    push_message(&mut last, &json!({"authentication": proof.message}));
    stream.write_all(&last)?;
    let verdict = read_message(stream, login)?;
    let signature = verdict["authentication"].as_str().and_then(|a| a.strip_prefix("v="));
    if signature != Some(proof.server_signature.as_str()) {
        return Err(GreetError::FalseServer);
    }
    Ok(version["server_version"].as_str().unwrap_or("unknown").to_owned())
}

fn push_message(out: &mut Vec<u8>, message: &Value) {
    out.extend_from_slice(message.to_string().as_bytes());
    out.push(0);
}

fn read_message(stream: &mut TcpStream, login: &Login) -> Result<Value, GreetError> {
    let mut bytes = Vec::with_capacity(256);
    let mut byte = [0u8; 1];
    loop {
        stream.read_exact(&mut byte)?;
        if byte[0] == 0 || bytes.len() > MESSAGE_BYTES_MAX {
            break;
        }
        bytes.push(byte[0]);
    }
    let strange = || GreetError::NotOurProtocol {
        found: String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned(),
    };
    let message: Value = serde_json::from_slice(&bytes).map_err(|_| strange())?;
    match message["success"].as_bool() {
        Some(true) => Ok(message),
        Some(false) => Err(GreetError::Refused {
            user: login.user.clone(),
            message: message["error"].as_str().unwrap_or("no reason given").to_owned(),
        }),
        None => Err(strange()),
    }
}
