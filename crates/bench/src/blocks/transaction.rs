//! Transactions as four versions of BigchainDB stored them: CREATE, without a payload.
//!
//! Written as canonical JSON (keys sorted, no spaces). The id is the hash of the part that the version hashed.

use super::material::{condition_uri, ecdsa_signature, ed25519_key, fulfillment, secp256k1_key, sha3_hex};
use crate::rng::Rng;

/// A version of the stored format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// 0.0.1: the version of the published numbers.
    V0_0_1,
    /// 0.1.0 to 0.2.0: payloads have a hash.
    V0_1,
    /// 0.3.0: crypto-conditions.
    V0_3,
    /// 0.9.5: inputs and outputs.
    V0_9,
}

impl Schema {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Schema::V0_0_1 => "0.0.1",
            Schema::V0_1 => "0.1",
            Schema::V0_3 => "0.3",
            Schema::V0_9 => "0.9",
        }
    }

    /// Whether keys and signatures are ed25519 (secp256k1 before).
    pub fn is_ed25519(self) -> bool {
        matches!(self, Schema::V0_3 | Schema::V0_9)
    }

    /// A public key of this version.
    pub fn key(self, rng: &mut Rng) -> String {
        if self.is_ed25519() { ed25519_key(rng) } else { secp256k1_key(rng) }
    }

    /// A timestamp in the format of this version.
    pub fn timestamp(self, rng: &mut Rng) -> String {
        let micros = rng.below(1_000_000);
        match self {
            Schema::V0_0_1 | Schema::V0_1 => format!("1454970000.{micros:06}"),
            Schema::V0_3 | Schema::V0_9 => format!("{}", 1_464_000_000 + micros),
        }
    }

    /// Appends a transaction as JSON.
    pub fn push_transaction(self, rng: &mut Rng, out: &mut String) {
        let text = match self {
            Schema::V0_0_1 => signed(rng, "null"),
            Schema::V0_1 => {
                let data = format!(r#"{{"hash":"{}","payload":null}}"#, sha3_hex(b"null"));
                signed(rng, &data)
            }
            Schema::V0_3 => conditions(rng),
            Schema::V0_9 => inputs_and_outputs(rng),
        };
        out.push_str(&text);
    }
}

/// 0.0.1 and 0.1: one owner, and one signature beside the hashed part.
fn signed(rng: &mut Rng, data: &str) -> String {
    let (from, to) = (secp256k1_key(rng), secp256k1_key(rng));
    let timestamp = Schema::V0_0_1.timestamp(rng);
    let body = format!(
        r#"{{"current_owner":"{from}","data":{data},"input":null,"new_owner":"{to}","operation":"CREATE","timestamp":"{timestamp}"}}"#
    );
    let (id, signature) = (sha3_hex(body.as_bytes()), ecdsa_signature(rng));
    format!(r#"{{"id":"{id}","signature":"{signature}","transaction":{body}}}"#)
}

/// 0.3: fulfillments and conditions; hashed without the fulfillment.
fn conditions(rng: &mut Rng) -> String {
    let (from, to, uri) = (ed25519_key(rng), ed25519_key(rng), condition_uri(rng));
    let timestamp = Schema::V0_3.timestamp(rng);
    let hash = sha3_hex(b"null");
    let body = |fulfillment: &str| {
        format!(
            r#"{{"conditions":[{{"cid":0,"condition":{{"details":{},"uri":"{uri}"}},"new_owners":["{to}"]}}],"data":{{"hash":"{hash}","payload":null}},"fulfillments":[{{"current_owners":["{from}"],"fid":0,"fulfillment":{fulfillment},"input":null}}],"operation":"CREATE","timestamp":"{timestamp}"}}"#,
            details(&to)
        )
    };
    let id = sha3_hex(body("null").as_bytes());
    let signed = body(&format!(r#""{}""#, fulfillment(rng)));
    format!(r#"{{"id":"{id}","transaction":{signed},"version":1}}"#)
}

/// 0.9: inputs and outputs; hashed without id and fulfillment.
fn inputs_and_outputs(rng: &mut Rng) -> String {
    let (from, to, uri) = (ed25519_key(rng), ed25519_key(rng), condition_uri(rng));
    let body = |id: &str, fulfillment: &str| {
        format!(
            r#"{{"asset":{{"data":null}},{id}"inputs":[{{"fulfillment":{fulfillment},"fulfills":null,"owners_before":["{from}"]}}],"metadata":null,"operation":"CREATE","outputs":[{{"amount":1,"condition":{{"details":{},"uri":"{uri}"}},"public_keys":["{to}"]}}],"version":"0.9"}}"#,
            details(&to)
        )
    };
    let id = sha3_hex(body("", "null").as_bytes());
    body(&format!(r#""id":"{id}","#), &format!(r#""{}""#, fulfillment(rng)))
}

fn details(key: &str) -> String {
    format!(r#"{{"bitmask":32,"public_key":"{key}","signature":null,"type":"fulfillment","type_id":4}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn mean_bytes(schema: Schema) -> f64 {
        let mut rng = Rng::new(8, 0);
        let mut all = String::new();
        (0..200).for_each(|_| schema.push_transaction(&mut rng, &mut all));
        all.len() as f64 / 200.0
    }

    #[test]
    fn transactions_are_as_large_as_those_of_their_version() {
        for (schema, bytes) in
            [(Schema::V0_0_1, 444.0), (Schema::V0_1, 530.0), (Schema::V0_3, 807.0), (Schema::V0_9, 695.0)]
        {
            let mean = mean_bytes(schema);
            assert!((mean / bytes - 1.0).abs() < 0.02, "{schema:?}: {mean}");
        }
    }

    #[test]
    fn transactions_are_canonical_json_under_their_hash() {
        let mut rng = Rng::new(8, 0);
        for schema in [Schema::V0_0_1, Schema::V0_1, Schema::V0_3, Schema::V0_9] {
            let mut text = String::new();
            schema.push_transaction(&mut rng, &mut text);
            let value: Value = serde_json::from_str(&text).expect("JSON");
            // serde_json writes compact text with sorted keys.
            assert_eq!(value.to_string(), text);
            assert_eq!(value["id"].as_str().map(str::len), Some(64));
            if !schema.is_ed25519() {
                let inner = value["transaction"].to_string();
                assert_eq!(value["id"], sha3_hex(inner.as_bytes()));
            }
        }
    }
}
