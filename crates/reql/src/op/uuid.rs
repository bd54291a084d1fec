//! `uuid`: identifiers, random or derived from a name.

use datum::Datum;
use uuid::{Builder, Uuid};

use crate::EvalError;
use crate::args::Args;
use crate::env::RandomSource;

/// The namespace in which names are hashed. Source: docs/reql-spec.md section 7.1, UUID.
const NAMESPACE: Uuid = Uuid::from_u128(0x9146_1c99_f89d_49d2_af96_d8e2_e14e_9b58);

/// `uuid`: a random identifier, or the one derived from a string.
pub fn uuid(args: &Args<'_>) -> Result<Datum, EvalError> {
    let made = match args.get(0) {
        None => random(args.env.random),
        Some(_) => Uuid::new_v5(&NAMESPACE, args.string(0)?.as_bytes()),
    };
    Ok(Datum::from(made.hyphenated().to_string()))
}

/// A random identifier (version 4).
#[must_use]
pub fn random(random: &dyn RandomSource) -> Uuid {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}
