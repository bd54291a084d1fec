//! Why a handshake ends, in the words and numbers drivers know.

use crate::scram::AuthError;

/// A V1_0 handshake that failed: sent as JSON, then the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `protocol_version` is missing or no number, or the message is no object.
    #[error("Expected a number for `protocol_version`.")]
    VersionNotNumber,
    /// Only version 0 is spoken.
    #[error("Unsupported `protocol_version`.")]
    VersionUnsupported,
    /// `authentication_method` is missing or no string.
    #[error("Expected a string for `authentication_method`.")]
    MethodNotString,
    /// Only SCRAM-SHA-256 is spoken.
    #[error("Unsupported `authentication_method`.")]
    MethodUnsupported,
    /// `authentication` is missing or no string.
    #[error("Expected a string for `authentication`.")]
    AuthenticationNotString,
    /// No NUL within the first 2048 bytes.
    #[error("Limited read buffer size.")]
    MessageTooLong,
    /// The message is not JSON.
    #[error("Invalid JSON object.")]
    InvalidJson,
    /// The message is JSON that no datum can hold, such as a key given twice.
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

/// A handshake that failed before users were known: sent as a line, then the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OldRefusal {
    /// The first four bytes are no version.
    #[error(
        "Received an unsupported protocol version. This port is for RethinkDB queries. \
         Does your client driver version not match the server?"
    )]
    UnknownVersion,
    /// A version or format of protocol buffers.
    #[error("The PROTOBUF client protocol is no longer supported")]
    Protobuf,
    /// A key of more than 2048 bytes.
    #[error("Client provided an authorization key that is too long.")]
    KeyTooLong,
    /// The key is not the password of `admin`.
    #[error("Incorrect authorization key.")]
    WrongKey,
    /// Neither JSON nor protocol buffers.
    #[error("Unrecognized protocol specified: '{0}'")]
    UnknownFormat(u32),
}

impl OldRefusal {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("ERROR: {self}\n\0").as_bytes());
    }
}
