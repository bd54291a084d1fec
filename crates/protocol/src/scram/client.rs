//! The client's side of a SCRAM exchange.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use datum::saslprep;
use subtle::ConstantTimeEq;

use super::attributes::{split, value};
use super::name::escape_name;
use super::record::{Key, SaltedKeys, hmac, sha256};

/// The server's messages are not valid, or it does not know the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerRefused {
    /// A message lacks an attribute or contains an invalid one.
    #[error("the server's SCRAM message cannot be read")]
    Unreadable,
    /// The server's nonce does not begin with the client's.
    #[error("the server's nonce does not begin with ours")]
    WrongNonce,
    /// The server's signature is wrong: it does not know this user's password.
    #[error("the server could not prove that it knows the password")]
    WrongSignature,
}

/// An exchange that waits for the server's challenge.
#[derive(Clone)]
pub struct ClientExchange {
    password: String,
    nonce: String,
    client_first_bare: String,
}

impl ClientExchange {
    /// `nonce`: random printable text without commas.
    #[must_use]
    pub fn new(user: &str, password: &str, nonce: &str) -> ClientExchange {
        let prepared = saslprep(user);
        let name = escape_name(prepared.as_deref().unwrap_or(user));
        ClientExchange {
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            client_first_bare: format!("n={name},r={nonce}"),
        }
    }

    /// `n,,n=<user>,r=<nonce>`: the message to send first.
    #[must_use]
    pub fn client_first(&self) -> String {
        format!("n,,{}", self.client_first_bare)
    }

    /// Answers the server's challenge. Costs as many rounds of PBKDF2 as the server asks for.
    pub fn prove(self, server_first: &str) -> Result<ClientProof, ServerRefused> {
        let attributes = split(server_first).ok_or(ServerRefused::Unreadable)?;
        let nonce = value(&attributes, b'r').ok_or(ServerRefused::Unreadable)?;
        let salt = value(&attributes, b's')
            .and_then(|salt| BASE64.decode(salt).ok())
            .ok_or(ServerRefused::Unreadable)?;
        let iterations =
            value(&attributes, b'i').and_then(|rounds| rounds.parse().ok()).filter(|rounds| *rounds > 0);
        let iterations: u32 = iterations.ok_or(ServerRefused::Unreadable)?;
        if !nonce.starts_with(&self.nonce) {
            return Err(ServerRefused::WrongNonce);
        }
        let keys = SaltedKeys::derive(&self.password, &salt, iterations);
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server_first},{without_proof}", self.client_first_bare);
        let proof = client_proof(&keys, auth_message.as_bytes());
        Ok(ClientProof {
            client_final: format!("{without_proof},p={}", BASE64.encode(proof)),
            server_signature: hmac(&keys.server_key(), auth_message.as_bytes()),
        })
    }
}

fn client_proof(keys: &SaltedKeys, auth_message: &[u8]) -> Key {
    let client_key = keys.client_key();
    let mut proof = hmac(&sha256(&client_key), auth_message);
    for (byte, key_byte) in proof.iter_mut().zip(client_key) {
        *byte ^= key_byte;
    }
    proof
}

/// The client's proof, and the server's expected signature.
#[derive(Clone)]
pub struct ClientProof {
    client_final: String,
    server_signature: Key,
}

impl ClientProof {
    /// `c=biws,r=<nonce>,p=<proof>`: the message to send next.
    #[must_use]
    pub fn client_final(&self) -> &str {
        &self.client_final
    }

    /// Checks `v=<server signature>`.
    pub fn check(&self, server_final: &str) -> Result<(), ServerRefused> {
        let signature = server_final.strip_prefix("v=").ok_or(ServerRefused::Unreadable)?;
        let signature = BASE64.decode(signature).map_err(|_| ServerRefused::Unreadable)?;
        if bool::from(signature.ct_eq(&self.server_signature)) {
            Ok(())
        } else {
            Err(ServerRefused::WrongSignature)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn the_exchange_of_rfc_7677_is_reproduced() {
        let exchange = ClientExchange::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(exchange.client_first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let proof = exchange.prove(SERVER_FIRST).unwrap();
        assert_eq!(
            proof.client_final(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(proof.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        assert_eq!(
            proof.check("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
            Err(ServerRefused::WrongSignature)
        );
        assert_eq!(proof.check("e=invalid-proof"), Err(ServerRefused::Unreadable));
    }

    #[test]
    fn a_challenge_that_is_not_ours_is_not_answered() {
        let prove =
            |server_first: &str| ClientExchange::new("user", "pencil", "mine").prove(server_first).err();
        assert_eq!(prove("r=theirs,s=AAAA,i=1"), Some(ServerRefused::WrongNonce));
        assert_eq!(prove("r=mine+,s=AAAA,i=0"), Some(ServerRefused::Unreadable));
        assert_eq!(prove("r=mine+,s=A,i=1"), Some(ServerRefused::Unreadable));
        assert_eq!(prove("nonsense"), Some(ServerRefused::Unreadable));
    }
}
