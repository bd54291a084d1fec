//! Password records, which a server keeps instead of passwords.

use datum::{Bytes, Datum, Object, Text, saslprep};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of salt in a new record.
pub const SALT_BYTES: usize = 16;

/// Default rounds of PBKDF2 for a new password.
pub const DEFAULT_ITERATIONS: u32 = 4096;

pub(super) type Key = [u8; 32];

/// The salted hash of a password: enough to verify a proof, not enough to compute one.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordRecord {
    /// Random bytes that make the records of equal passwords differ.
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2, at least 1.
    pub iterations: u32,
    /// SHA-256 of the client key: verifies a client's proof.
    pub stored_key: [u8; 32],
    /// Signs the server's last message.
    pub server_key: [u8; 32],
    pub is_empty: bool,
}

/// An object that is not a password record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field} of a password record is missing or wrong")]
pub struct WrongRecord {
    /// The first invalid field.
    pub field: &'static str,
}

impl PasswordRecord {
    /// The record of `password`. Costs `iterations` rounds (4096 take about a millisecond). A password that
    /// SASLprep forbids is used unchanged, as its bytes.
    #[must_use]
    pub fn new(password: &str, salt: [u8; SALT_BYTES], iterations: u32) -> PasswordRecord {
        let keys = SaltedKeys::derive(password, &salt, iterations.max(1));
        PasswordRecord {
            salt: salt.to_vec(),
            iterations: iterations.max(1),
            stored_key: keys.stored_key(),
            server_key: keys.server_key(),
            is_empty: password.is_empty(),
        }
    }

    /// The record of the empty password, with which the built-in `admin` begins: one round.
    #[must_use]
    pub fn empty(salt: [u8; SALT_BYTES]) -> PasswordRecord {
        PasswordRecord::new("", salt, 1)
    }

    /// Whether this is the record of `password`. Takes the same time wherever the keys differ.
    #[must_use]
    pub fn matches(&self, password: &str) -> bool {
        let keys = SaltedKeys::derive(password, &self.salt, self.iterations);
        keys.stored_key().ct_eq(&self.stored_key).into()
    }

    /// The record as an object that a catalog row can hold.
    #[must_use]
    pub fn to_object(&self) -> Object {
        let fields = [
            ("is_empty", Datum::Bool(self.is_empty)),
            ("iterations", Datum::Number(f64::from(self.iterations))),
            ("salt", binary(&self.salt)),
            ("server_key", binary(&self.server_key)),
            ("stored_key", binary(&self.stored_key)),
        ];
        fields.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect()
    }

    /// Inverse of [`PasswordRecord::to_object`].
    pub fn from_object(object: &Object) -> Result<PasswordRecord, WrongRecord> {
        let bytes = |field: &'static str| match object.get(field) {
            Some(Datum::Binary(bytes)) => Ok(bytes),
            _ => Err(WrongRecord { field }),
        };
        let key = |field| Key::try_from(bytes(field)?.as_ref()).map_err(|_| WrongRecord { field });
        let iterations = match object.get("iterations") {
            Some(Datum::Number(n)) if n >= 1.0 && n <= f64::from(u32::MAX) && n.fract() == 0.0 => n as u32,
            _ => return Err(WrongRecord { field: "iterations" }),
        };
        let Some(Datum::Bool(is_empty)) = object.get("is_empty") else {
            return Err(WrongRecord { field: "is_empty" });
        };
        Ok(PasswordRecord {
            salt: bytes("salt")?.to_vec(),
            iterations,
            stored_key: key("stored_key")?,
            server_key: key("server_key")?,
            is_empty,
        })
    }
}

fn binary(bytes: &[u8]) -> Datum {
    Datum::Binary(Bytes::copy_from_slice(bytes))
}

/// Keys are secrets: only the other fields are printed.
impl std::fmt::Debug for PasswordRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordRecord")
            .field("iterations", &self.iterations)
            .field("is_empty", &self.is_empty)
            .finish_non_exhaustive()
    }
}

/// The salted password, from which all keys derive.
pub(super) struct SaltedKeys {
    salted_password: Key,
}

impl SaltedKeys {
    pub(super) fn derive(password: &str, salt: &[u8], iterations: u32) -> SaltedKeys {
        let prepared = saslprep(password);
        let password = prepared.as_deref().unwrap_or(password);
        let salted_password =
            pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password.as_bytes(), salt, iterations.max(1));
        SaltedKeys { salted_password }
    }

    pub(super) fn client_key(&self) -> Key {
        hmac(&self.salted_password, b"Client Key")
    }

    pub(super) fn stored_key(&self) -> Key {
        sha256(&self.client_key())
    }

    pub(super) fn server_key(&self) -> Key {
        hmac(&self.salted_password, b"Server Key")
    }
}

pub(super) fn hmac(key: &[u8], message: &[u8]) -> Key {
    let mut mac =
        <Hmac<Sha256> as Mac>::new_from_slice(key).expect("invariant: HMAC takes a key of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

pub(super) fn sha256(message: &[u8]) -> Key {
    Sha256::digest(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_knows_its_password_and_no_other() {
        let record = PasswordRecord::new("pencil", [7; SALT_BYTES], 3);
        assert!(record.matches("pencil"));
        assert!(!record.matches("Pencil"));
        assert!(!record.matches(""));
        assert!(!record.is_empty);
        assert!(PasswordRecord::empty([1; SALT_BYTES]).matches(""));
    }

    #[test]
    fn a_record_survives_being_stored() {
        let record = PasswordRecord::new("pencil", [7; SALT_BYTES], 4096);
        assert_eq!(PasswordRecord::from_object(&record.to_object()), Ok(record.clone()));
        for field in ["is_empty", "iterations", "salt", "server_key", "stored_key"] {
            let mut damaged = record.to_object().to_builder();
            damaged.insert(Text::from_static(field), Datum::from("x"));
            assert_eq!(PasswordRecord::from_object(&damaged.build()), Err(WrongRecord { field }));
        }
    }

    #[test]
    fn a_printed_record_shows_no_key() {
        let text = format!("{:?}", PasswordRecord::new("pencil", [7; SALT_BYTES], 2));
        assert_eq!(text, "PasswordRecord { iterations: 2, is_empty: false, .. }");
    }
}
