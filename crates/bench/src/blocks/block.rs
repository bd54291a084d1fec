//! A valid block as the text of an insert, and a cheap way to derive fresh blocks from it.
//!
//! A block's id is the hash of its canonical JSON, in which the voters come last. A fresh block has the same
//! transactions and another order of voters: hashing continues from where the voters begin, and only id, voters and
//! signature change in the text, without changing its length.

use sha3::{Digest, Sha3_256};

use super::material::{self, KEY_BYTES};
use super::transaction::Schema;
use crate::rng::Rng;

/// The parameters of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockShape {
    /// The version of the stored format.
    pub schema: Schema,
    /// The number of transactions.
    pub size: BlockSize,
    /// Number of keys in the federation.
    pub voters: usize,
}

/// Bounds a block by its transactions or by the bytes of its JSON.
#[derive(Clone, Copy, Debug)]
pub enum BlockSize {
    Transactions(usize),
    /// As many transactions as come closest to this many bytes of JSON.
    Bytes(usize),
}

/// How blocks get their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// A new block with its own hash for every insert.
    Fresh,
    /// None: the server generates one.
    Generated,
    /// The same block every time.
    Constant,
}

/// A block inside the query that inserts it.
#[derive(Clone, Debug)]
pub struct BlockQuery {
    query: Vec<u8>,
    before_voters: Sha3_256,
    id_at: Option<usize>,
    voters_at: usize,
    signature_at: usize,
    voters: Vec<String>,
    schema: Schema,
    pub transactions: usize,
    /// Bytes of the block's JSON.
    pub block_bytes: usize,
}

const ID_BYTES: usize = 64;
/// The separator of two voters in the text of a JSON string: `\",\"`.
const ESCAPED_GAP_BYTES: usize = 5;

impl BlockQuery {
    /// Makes a block and writes it as the text of a JSON string between `before` and `after`.
    pub fn new(shape: BlockShape, ids: Ids, before: &str, after: &str, rng: &mut Rng) -> Self {
        let schema = shape.schema;
        let voters: Vec<String> = (0..shape.voters).map(|_| schema.key(rng)).collect();
        let (head, transactions) = head_of(shape, rng);
        let head = format!(r#"{head}],"voters":["#);
        let mut before_voters = Sha3_256::new();
        before_voters.update(&head);

        let mut query = before.as_bytes().to_vec();
        let mut block_bytes = 0;
        let mut push = |query: &mut Vec<u8>, text: &str| {
            block_bytes += text.len();
            query.extend_from_slice(text.replace('"', r#"\""#).as_bytes());
        };
        let mut id_at = None;
        push(&mut query, "{");
        if ids != Ids::Generated {
            push(&mut query, r#""id":""#);
            id_at = Some(query.len());
            push(&mut query, &"0".repeat(ID_BYTES));
            push(&mut query, r#"","#);
        }
        push(&mut query, r#""block":"#);
        push(&mut query, &head);
        push(&mut query, "\"");
        let voters_at = query.len();
        push(&mut query, &voters.join(r#"",""#));
        push(&mut query, r#""]},"signature":""#);
        let signature_at = query.len();
        push(&mut query, &signature(schema, rng));
        let has_votes = schema != Schema::V0_9;
        push(&mut query, if has_votes { r#"","votes":[]}"# } else { r#""}"# });
        query.extend_from_slice(after.as_bytes());
        let mut block = BlockQuery {
            query,
            before_voters,
            id_at,
            voters_at,
            signature_at,
            voters,
            schema,
            transactions,
            block_bytes,
        };
        block.write_id();
        block
    }

    pub fn query(&self) -> &[u8] {
        &self.query
    }

    /// Turns the block into another valid one.
    pub fn randomize(&mut self, rng: &mut Rng) {
        for place in (1..self.voters.len()).rev() {
            self.voters.swap(place, rng.below(place as u64 + 1) as usize);
        }
        let mut at = self.voters_at;
        for voter in &self.voters {
            self.query[at..at + KEY_BYTES].copy_from_slice(voter.as_bytes());
            at += KEY_BYTES + ESCAPED_GAP_BYTES;
        }
        let signature = signature(self.schema, rng);
        let end = self.signature_at + signature.len();
        self.query[self.signature_at..end].copy_from_slice(signature.as_bytes());
        self.write_id();
    }

    fn write_id(&mut self) {
        let Some(at) = self.id_at else { return };
        let mut hash = self.before_voters.clone();
        for (place, voter) in self.voters.iter().enumerate() {
            hash.update(if place == 0 { "\"" } else { ",\"" });
            hash.update(voter);
            hash.update("\"");
        }
        hash.update("]}");
        let id = material::hex(&hash.finalize());
        self.query[at..at + ID_BYTES].copy_from_slice(id.as_bytes());
    }
}

/// The canonical JSON of the inner block up to the last transaction, and the number of transactions.
fn head_of(shape: BlockShape, rng: &mut Rng) -> (String, usize) {
    let schema = shape.schema;
    let mut head = format!(
        r#"{{"node_pubkey":"{}","timestamp":"{}","transactions":["#,
        schema.key(rng),
        schema.timestamp(rng)
    );
    let around = 300 + shape.voters * (KEY_BYTES + 3);
    let mut count = 0;
    loop {
        let is_enough = match shape.size {
            BlockSize::Transactions(wanted) => count >= wanted,
            BlockSize::Bytes(wanted) => {
                let mean = head.len() / (count + 1);
                head.len() + around + mean / 2 >= wanted && count > 0
            }
        };
        if is_enough {
            return (head, count);
        }
        if count > 0 {
            head.push(',');
        }
        schema.push_transaction(rng, &mut head);
        count += 1;
    }
}

fn signature(schema: Schema, rng: &mut Rng) -> String {
    match schema.is_ed25519() {
        true => material::ed25519_signature(rng),
        false => material::short_ecdsa_signature(rng),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn block_of(query: &BlockQuery) -> Value {
        let text: String = serde_json::from_slice(query.query()).expect("a JSON string");
        assert_eq!(text.len(), query.block_bytes);
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn every_fresh_block_is_valid_and_different() {
        let mut rng = Rng::new(10, 0);
        for schema in [Schema::V0_0_1, Schema::V0_1, Schema::V0_3, Schema::V0_9] {
            let shape = BlockShape { schema, size: BlockSize::Transactions(3), voters: 32 };
            let mut query = BlockQuery::new(shape, Ids::Fresh, "\"", "\"", &mut rng);
            let mut ids = std::collections::HashSet::new();
            for _ in 0..20 {
                let block = block_of(&query);
                let hash = material::sha3_hex(block["block"].to_string().as_bytes());
                assert_eq!(block["id"], hash);
                assert_eq!(block["block"]["transactions"].as_array().map(Vec::len), Some(3));
                assert_eq!(block["block"]["voters"].as_array().map(Vec::len), Some(32));
                assert!(ids.insert(hash));
                query.randomize(&mut rng);
            }
        }
    }

    #[test]
    fn a_block_of_900_kb_has_about_the_known_number_of_transactions() {
        let mut rng = Rng::new(11, 0);
        for (schema, transactions) in [(Schema::V0_0_1, 2_005), (Schema::V0_9, 1_290)] {
            let shape = BlockShape { schema, size: BlockSize::Bytes(900_000), voters: 32 };
            let query = BlockQuery::new(shape, Ids::Fresh, "\"", "\"", &mut rng);
            assert!(query.block_bytes.abs_diff(900_000) < 1_000, "{}", query.block_bytes);
            assert!(query.transactions.abs_diff(transactions) < 30, "{}", query.transactions);
        }
    }

    #[test]
    fn without_an_id_the_server_makes_one() {
        let shape = BlockShape { schema: Schema::V0_0_1, size: BlockSize::Transactions(1), voters: 1 };
        let query = BlockQuery::new(shape, Ids::Generated, "\"", "\"", &mut Rng::new(1, 0));
        assert!(block_of(&query).get("id").is_none());
    }
}
