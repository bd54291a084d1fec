//! Errors that end a handshake, with the texts and numbers that drivers know.

use crate::scram::AuthError;

/// A V1_0 handshake failed. Sent as JSON, then the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `protocol_version` is missing or not a number, or the message is not an object.
    #[error("Expected a number for `protocol_version`.")]
    VersionNotNumber,
    /// Only version 0 is supported.
    #[error("Unsupported `protocol_version`.")]
    VersionUnsupported,
    /// `authentication_method` is missing or not a string.
    #[error("Expected a string for `authentication_method`.")]
    MethodNotString,
    /// Only SCRAM-SHA-256 is supported.
    #[error("Unsupported `authentication_method`.")]
    MethodUnsupported,
    /// `authentication` is missing or not a string.
    #[error("Expected a string for `authentication`.")]
    AuthenticationNotString,
    /// No NUL within the first 2048 bytes.
    #[error("Limited read buffer size.")]
    MessageTooLong,
    /// The message is not JSON.
    #[error("Invalid JSON object.")]
    InvalidJson,
    /// The message is JSON that cannot be a datum, for example because of a duplicate key.
    #[error("Failed to convert JSON to datum.")]
    NotADatum,
    /// The exchange itself failed.
    #[error(transparent)]
    Auth(#[from] AuthError),
}

impl Refusal {
    /// The number that tells drivers which exception to raise.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Refusal::VersionNotNumber => 1,
            Refusal::VersionUnsupported => 2,
            Refusal::MethodNotString => 3,
            Refusal::MethodUnsupported => 4,
            Refusal::AuthenticationNotString => 5,
            Refusal::MessageTooLong => 7,
            Refusal::InvalidJson => 8,
            Refusal::NotADatum => 9,
            Refusal::Auth(error) => error.code(),
        }
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        let body =
            serde_json::json!({"error": self.to_string(), "error_code": self.code(), "success": false});
        out.extend_from_slice(body.to_string().as_bytes());
        out.push(0);
    }
}

/// A handshake without users failed. Sent as a line of text, then the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LegacyRefusal {
    /// The first four bytes are not a known version.
    #[error(
        "Received an unsupported protocol version. This port is for RethinkDB queries. \
         Does your client driver version not match the server?"
    )]
    UnknownVersion,
    /// A version or wire format of protocol buffers.
    #[error("The PROTOBUF client protocol is no longer supported")]
    Protobuf,
    /// A key of more than 2048 bytes.
    #[error("Client provided an authorization key that is too long.")]
    KeyTooLong,
    /// The key is not the password of `admin`.
    #[error("Incorrect authorization key.")]
    WrongKey,
    /// The wire format is neither JSON nor protocol buffers.
    #[error("Unrecognized protocol specified: '{0}'")]
    UnknownFormat(u32),
}

impl LegacyRefusal {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("ERROR: {self}\n\0").as_bytes());
    }
}
