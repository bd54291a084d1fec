//! What a server keeps instead of a password.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::name::prepare;

/// Bytes of salt in a new record.
pub const SALT_BYTES: usize = 16;

/// Rounds of PBKDF2 for a new password unless told otherwise.
pub const DEFAULT_ITERATIONS: u32 = 4096;

pub(super) type Key = [u8; 32];

/// The salted hash of a password: enough to check a proof, not enough to make one.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordRecord {
    /// Random bytes that make equal passwords different.
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2, at least 1.
    pub iterations: u32,
    /// SHA-256 of the client key: checks a client's proof.
    pub stored_key: [u8; 32],
    /// Signs the server's last message.
    pub server_key: [u8; 32],
    /// Whether the password is empty.
    pub is_empty: bool,
}

/// Bytes or a datum that are no password record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a password record of version {version}", version = VERSION)]
pub struct WrongRecord;

const VERSION: u8 = 1;

impl PasswordRecord {
    /// The record of `password`. Costs `iterations` rounds (4096 take about a millisecond).
    /// A password SASLprep forbids is used as it is, as its bytes.
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

    /// The empty password as the built-in `admin` begins: one round.
    #[must_use]
    pub fn empty(salt: [u8; SALT_BYTES]) -> PasswordRecord {
        PasswordRecord::new("", salt, 1)
    }

    /// Whether `password` is the one this record was made of, in time that does not depend on
    /// where they differ.
    #[must_use]
    pub fn matches(&self, password: &str) -> bool {
        let keys = SaltedKeys::derive(password, &self.salt, self.iterations);
        keys.stored_key().ct_eq(&self.stored_key).into()
    }

    /// Version, flag, iterations, both keys, salt.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.is_empty)];
        bytes.extend_from_slice(&self.iterations.to_le_bytes());
        bytes.extend_from_slice(&self.stored_key);
        bytes.extend_from_slice(&self.server_key);
        bytes.extend_from_slice(&self.salt);
        bytes
    }

    /// The record [`PasswordRecord::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<PasswordRecord, WrongRecord> {
        let (&[version, is_empty], rest) = bytes.split_first_chunk().ok_or(WrongRecord)?;
        let (iterations, rest) = rest.split_first_chunk().ok_or(WrongRecord)?;
        let (stored_key, rest) = rest.split_first_chunk().ok_or(WrongRecord)?;
        let (server_key, salt) = rest.split_first_chunk().ok_or(WrongRecord)?;
        let iterations = u32::from_le_bytes(*iterations);
        if version != VERSION || is_empty > 1 || iterations == 0 {
            return Err(WrongRecord);
        }
        Ok(PasswordRecord {
            salt: salt.to_vec(),
            iterations,
            stored_key: *stored_key,
            server_key: *server_key,
            is_empty: is_empty == 1,
        })
    }
}

/// Keys are secrets: only the harmless parts are printed.
impl std::fmt::Debug for PasswordRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordRecord")
            .field("iterations", &self.iterations)
            .field("is_empty", &self.is_empty)
            .finish_non_exhaustive()
    }
}

/// What a password, a salt and a number of rounds give: the root of every other key.
pub(super) struct SaltedKeys {
    salted_password: Key,
}

impl SaltedKeys {
    pub(super) fn derive(password: &str, salt: &[u8], iterations: u32) -> SaltedKeys {
        let prepared = prepare(password);
        let password = prepared.as_deref().unwrap_or(password);
        let salted_password = pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password.as_bytes(), salt, iterations.max(1));
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
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).expect("invariant: HMAC takes a key of any length");
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
    fn a_record_survives_its_bytes() {
        let record = PasswordRecord::new("pencil", [7; SALT_BYTES], 4096);
        assert_eq!(PasswordRecord::from_bytes(&record.to_bytes()), Ok(record.clone()));
        let mut other_version = record.to_bytes();
        other_version[0] = 9;
        assert_eq!(PasswordRecord::from_bytes(&other_version), Err(WrongRecord));
        for length in 0..70 {
            assert_eq!(PasswordRecord::from_bytes(&record.to_bytes()[..length]), Err(WrongRecord), "{length}");
        }
    }

    #[test]
    fn a_printed_record_shows_no_key() {
        let text = format!("{:?}", PasswordRecord::new("pencil", [7; SALT_BYTES], 2));
        assert_eq!(text, "PasswordRecord { iterations: 2, is_empty: false, .. }");
    }
}
