//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use crate::chance::Chance;

/// A conversation after the first message was written.
pub struct Conversation {
    nonce: String,
    first_bare: String,
}

/// What the client's last message is and what the server must prove with its own.
pub struct Proof {
    /// The last message.
    pub message: String,
    /// The `v=` the server must send.
    pub server_signature: String,
}

impl Conversation {
    /// Starts a conversation for `user`.
    pub fn start(user: &str, chance: &mut Chance) -> Self {
        let mut random = [0u8; 18];
        chance.fill(&mut random);
        Conversation::with_nonce(user, STANDARD.encode(random))
    }

    fn with_nonce(user: &str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={user},r={nonce}");
        Conversation { nonce, first_bare }
    }

    /// The client's first message.
    pub fn first_message(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// Answers the server's first message; `None` when that message makes no sense.
    pub fn prove(&self, password: &str, server_first: &str) -> Option<Proof> {
        let field = |name: &str| server_first.split(',').find_map(|p| p.strip_prefix(name));
        let nonce = field("r=").filter(|n| n.starts_with(&self.nonce))?;
        let salt = STANDARD.decode(field("s=")?).ok()?;
        let iterations: u32 = field("i=")?.parse().ok().filter(|i| *i > 0)?;

        let mut salted = [0u8; 32];
        pbkdf2::pbkdf2::<Hmac<Sha256>>(password.as_bytes(), &salt, iterations, &mut salted).ok()?;
        let client_key = keyed_hash(&salted, b"Client Key");
        let stored_key = Sha256::digest(client_key);
        let without_proof = format!("c=biws,r={nonce}");
        let everything = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = keyed_hash(&stored_key, everything.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(k, s)| k ^ s).collect();
        let server_key = keyed_hash(&salted, b"Server Key");
        Some(Proof {
            message: format!("{without_proof},p={}", STANDARD.encode(proof)),
            server_signature: STANDARD.encode(keyed_hash(&server_key, everything.as_bytes())),
        })
    }
}

fn keyed_hash(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key).expect("invariant: HMAC takes keys of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::Conversation;

    #[test]
    fn the_example_of_rfc_7677_comes_out() {
        let talk = Conversation::with_nonce("user", "rOprNGfwEbeRWgbNEkqO".into());
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proof = talk.prove("pencil", server_first).expect("a proof");
        assert!(proof.message.ends_with("p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="));
        assert_eq!(proof.server_signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert!(talk.prove("pencil", "r=other,s=AAAA,i=1").is_none());
    }
}
