//! The server's side of a SCRAM exchange.
//!
//! Guarantee: until the last step a client cannot tell an unknown user from a known one. Both see messages of the
//! same shape, and both cost the server the same work.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use datum::saslprep;
use subtle::ConstantTimeEq;

use super::attributes::{split, value};
use super::name::unescape_name;
use super::record::{DEFAULT_ITERATIONS, Key, PasswordRecord, SALT_BYTES, hmac, sha256};

/// Why an exchange failed. The text and [`AuthError::code`] go to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// A message does not consist of attributes, or one is missing or badly encoded.
    #[error("Invalid encoding")]
    InvalidEncoding,
    /// The client demands an extension.
    #[error("Extensions not supported")]
    ExtensionsNotSupported,
    /// The proof does not match the password.
    #[error("Wrong password")]
    WrongPassword,
    /// The client asks for channel binding, or its first message has another form.
    #[error("Channel binding is not supported")]
    ChannelBindingNotSupported,
    /// There is no such user.
    #[error("Unknown user")]
    UnknownUser,
    /// The name has an invalid escape, or SASLprep forbids it.
    #[error("Invalid username encoding")]
    InvalidUsernameEncoding,
    /// The name is empty.
    #[error("Empty username")]
    EmptyUsername,
    /// Any other error, such as a wrong nonce.
    #[error("Other error")]
    Other,
}

impl AuthError {
    /// The number drivers see; source: docs/reql-spec.md section 1.1.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            AuthError::InvalidEncoding => 10,
            AuthError::ExtensionsNotSupported => 11,
            AuthError::WrongPassword => 12,
            AuthError::ChannelBindingNotSupported => 15,
            AuthError::UnknownUser => 17,
            AuthError::InvalidUsernameEncoding | AuthError::EmptyUsername => 18,
            AuthError::Other => 20,
        }
    }
}

/// Makes up plausible records for users that do not exist. The salt of a name is always the same: otherwise a
/// second attempt would give it away.
#[derive(Clone)]
pub struct Decoy {
    secret: Key,
}

impl Decoy {
    /// `secret`: random bytes that stay the same while the server runs.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Decoy {
        Decoy { secret }
    }

    fn record(&self, user: &str) -> PasswordRecord {
        let digest = hmac(&self.secret, user.as_bytes());
        let key = hmac(&self.secret, &digest);
        PasswordRecord {
            salt: digest.iter().copied().take(SALT_BYTES).collect(),
            iterations: DEFAULT_ITERATIONS,
            stored_key: key,
            server_key: key,
            is_empty: false,
        }
    }
}

/// The client's first message, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    user: String,
    client_nonce: String,
    /// The text of the first message that the last message must repeat.
    binding: String,
    client_first_bare: String,
}

impl Challenge {
    /// Reads `n,,n=<user>,r=<client nonce>`. An authorization identity may stand between the commas; it is ignored,
    /// as in RethinkDB: queries run as the authenticated user.
    pub fn parse(client_first: &str) -> Result<Challenge, AuthError> {
        let header_and_rest = client_first.strip_prefix("n,").ok_or(AuthError::ChannelBindingNotSupported)?;
        let (authorisation, bare) = header_and_rest.split_once(',').ok_or(AuthError::InvalidEncoding)?;
        let attributes = split(bare).ok_or(AuthError::InvalidEncoding)?;
        if value(&attributes, b'm').is_some() {
            return Err(AuthError::ExtensionsNotSupported);
        }
        let escaped = value(&attributes, b'n').ok_or(AuthError::InvalidEncoding)?;
        let client_nonce =
            value(&attributes, b'r').filter(|nonce| !nonce.is_empty()).ok_or(AuthError::InvalidEncoding)?;
        Ok(Challenge {
            user: user_name(escaped)?,
            client_nonce: client_nonce.to_owned(),
            binding: BASE64.encode(format!("n,{authorisation},")),
            client_first_bare: bare.to_owned(),
        })
    }

    /// The normalised name to look up.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Responds with the salt and rounds of `record`, or of a decoy if there is none. `server_nonce` is random
    /// base64 text that is appended to the client's nonce.
    #[must_use]
    pub fn answer(self, record: Option<PasswordRecord>, decoy: &Decoy, server_nonce: &str) -> ServerExchange {
        let known = record.is_some();
        let record = record.unwrap_or_else(|| decoy.record(&self.user));
        let nonce = format!("{}{server_nonce}", self.client_nonce);
        let server_first = format!("r={nonce},s={},i={}", BASE64.encode(&record.salt), record.iterations);
        ServerExchange { challenge: self, known, record, nonce, server_first }
    }
}

fn user_name(escaped: &str) -> Result<String, AuthError> {
    let name = unescape_name(escaped).ok_or(AuthError::InvalidUsernameEncoding)?;
    let prepared = saslprep(&name).ok_or(AuthError::InvalidUsernameEncoding)?;
    if prepared.is_empty() {
        return Err(AuthError::EmptyUsername);
    }
    Ok(prepared.into_owned())
}

/// An exchange that waits for the client's proof.
#[derive(Debug)]
pub struct ServerExchange {
    challenge: Challenge,
    known: bool,
    record: PasswordRecord,
    nonce: String,
    server_first: String,
}

impl ServerExchange {
    /// `r=<nonce>,s=<salt>,i=<rounds>`: the message to send next.
    #[must_use]
    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Verifies `c=<binding>,r=<nonce>,p=<proof>`. Returns the user and `v=<server signature>`.
    pub fn finish(&self, client_final: &str) -> Result<(String, String), AuthError> {
        let (without_proof, proof) = client_final.rsplit_once(",p=").ok_or(AuthError::InvalidEncoding)?;
        let attributes = split(without_proof).ok_or(AuthError::InvalidEncoding)?;
        let binding = value(&attributes, b'c').ok_or(AuthError::InvalidEncoding)?;
        let nonce = value(&attributes, b'r').ok_or(AuthError::InvalidEncoding)?;
        if binding != self.challenge.binding || nonce != self.nonce {
            return Err(AuthError::Other);
        }
        let proof = BASE64.decode(proof).map_err(|_| AuthError::InvalidEncoding)?;
        let auth_message =
            format!("{},{},{without_proof}", self.challenge.client_first_bare, self.server_first);
        let proved = self.proves(&proof, auth_message.as_bytes());
        if !self.known {
            return Err(AuthError::UnknownUser);
        }
        if !proved {
            return Err(AuthError::WrongPassword);
        }
        let signature = hmac(&self.record.server_key, auth_message.as_bytes());
        Ok((self.challenge.user.clone(), format!("v={}", BASE64.encode(signature))))
    }

    fn proves(&self, proof: &[u8], auth_message: &[u8]) -> bool {
        let client_signature = hmac(&self.record.stored_key, auth_message);
        let Ok(proof) = <&Key>::try_from(proof) else { return false };
        let mut client_key = client_signature;
        for (byte, proof_byte) in client_key.iter_mut().zip(proof) {
            *byte ^= proof_byte;
        }
        sha256(&client_key).ct_eq(&self.record.stored_key).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7677 section 3.
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn rfc_record() -> PasswordRecord {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        PasswordRecord::new("pencil", salt.try_into().unwrap(), 4096)
    }

    fn decoy() -> Decoy {
        Decoy::new([3; 32])
    }

    #[test]
    fn the_exchange_of_rfc_7677_is_reproduced() {
        let exchange =
            Challenge::parse(CLIENT_FIRST).unwrap().answer(Some(rfc_record()), &decoy(), SERVER_NONCE);
        assert_eq!(
            exchange.server_first(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let (user, server_final) = exchange.finish(CLIENT_FINAL).unwrap();
        assert_eq!(user, "user");
        assert_eq!(server_final, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_proof_changed_in_one_letter_is_a_wrong_password() {
        let exchange =
            Challenge::parse(CLIENT_FIRST).unwrap().answer(Some(rfc_record()), &decoy(), SERVER_NONCE);
        let forged = CLIENT_FINAL.replace("p=dHzb", "p=eHzb");
        assert_eq!(exchange.finish(&forged), Err(AuthError::WrongPassword));
    }

    #[test]
    fn an_unknown_user_is_reported_only_at_the_end() {
        let first = |user: &str| {
            let message = format!("n,,n={user},r=nonce");
            Challenge::parse(&message).unwrap().answer(None, &decoy(), "server")
        };
        let exchange = first("nobody");
        assert_eq!(exchange.server_first(), first("nobody").server_first(), "a second try looks the same");
        assert_ne!(exchange.server_first(), first("somebody").server_first());
        assert!(exchange.server_first().ends_with(",i=4096"));
        let proof = BASE64.encode([0; 32]);
        assert_eq!(exchange.finish(&format!("c=biws,r=nonceserver,p={proof}")), Err(AuthError::UnknownUser));
    }

    #[test]
    fn an_authorization_identity_is_ignored() {
        let challenge = Challenge::parse("n,a=other,n=user,r=nonce").unwrap();
        assert_eq!(challenge.user(), "user");
        let exchange = challenge.answer(Some(rfc_record()), &decoy(), "server");
        let last = |header: &str| format!("c={},r=nonceserver,p=AAAA", BASE64.encode(header));
        assert_eq!(exchange.finish(&last("n,a=other,")), Err(AuthError::WrongPassword));
        assert_eq!(exchange.finish(&last("n,,")), Err(AuthError::Other));
    }

    #[test]
    fn each_bad_first_message_has_its_error() {
        let cases = [
            ("y,,n=user,r=x", AuthError::ChannelBindingNotSupported),
            ("p=tls-unique,,n=user,r=x", AuthError::ChannelBindingNotSupported),
            ("", AuthError::ChannelBindingNotSupported),
            ("n,", AuthError::InvalidEncoding),
            ("n,,", AuthError::InvalidEncoding),
            ("n,,n=user", AuthError::InvalidEncoding),
            ("n,,r=x", AuthError::InvalidEncoding),
            ("n,,n=user,r=", AuthError::InvalidEncoding),
            ("n,,m=ext,n=user,r=x", AuthError::ExtensionsNotSupported),
            ("n,,n=us=er,r=x", AuthError::InvalidUsernameEncoding),
            ("n,,n=us\u{7}er,r=x", AuthError::InvalidUsernameEncoding),
            ("n,,n=,r=x", AuthError::EmptyUsername),
        ];
        for (message, error) in cases {
            assert_eq!(Challenge::parse(message), Err(error), "{message:?}");
        }
    }

    #[test]
    fn each_bad_last_message_has_its_error() {
        let cases = [
            ("", AuthError::InvalidEncoding),
            ("c=biws,r=nonceserver", AuthError::InvalidEncoding),
            ("c=biws,r=nonceserver,p=!", AuthError::InvalidEncoding),
            ("c=biws,p=AAAA", AuthError::InvalidEncoding),
            ("c=biws,r=other,p=AAAA", AuthError::Other),
            ("c=eSws,r=nonceserver,p=AAAA", AuthError::Other),
            ("c=biws,r=nonceserver,p=AAAA", AuthError::WrongPassword),
        ];
        for (message, error) in cases {
            let exchange =
                Challenge::parse("n,,n=user,r=nonce").unwrap().answer(Some(rfc_record()), &decoy(), "server");
            assert_eq!(exchange.finish(message), Err(error), "{message:?}");
        }
    }
}
