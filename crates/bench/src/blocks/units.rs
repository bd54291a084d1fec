//! Write units: each connection inserts one block after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::answer::{self, Failure, FailureKind};

use super::block::{BlockQuery, BlockShape, Ids};
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};
use crate::rng::Rng;

/// The kind of operation.
pub const NAMES: &[&str] = &["INSERT-BLOCK"];

/// The parameters of all units.
#[derive(Clone, Debug)]
pub struct UnitPlan {
    pub shape: BlockShape,
    /// How blocks get their ids.
    pub ids: Ids,
    /// Database and table.
    pub table: (String, String),
    /// Durability of the inserts; that of the table when `None`.
    pub durability: Option<String>,
    /// The seed of the blocks.
    pub seed: u64,
}

/// Counters of inserted blocks, shared by all threads.
#[derive(Debug, Default)]
pub struct BlockCounters {
    transactions: AtomicU64,
    bytes: AtomicU64,
    conflicts: AtomicU64,
}

impl BlockCounters {
    /// Transactions in acknowledged blocks.
    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }

    /// Bytes of acknowledged blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Inserts of a block that already existed.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }
}

/// The units of one thread.
pub struct Units {
    blocks: Vec<BlockQuery>,
    ids: Ids,
    rng: Rng,
    counters: Arc<BlockCounters>,
}

impl Units {
    /// Creates the blocks of `units` units of thread `thread`.
    pub fn new(plan: &UnitPlan, thread: usize, units: usize, counters: Arc<BlockCounters>) -> Self {
        let mut rng = Rng::new(plan.seed, 4_000_000 + thread as u64);
        let (db, table) = &plan.table;
        let before = format!(r#"[1,[56,[[15,[[14,["{db}"]],"{table}"]],[98,[""#);
        let after = match &plan.durability {
            Some(durability) => format!(r#""]]],{{"durability":"{durability}"}}],{{}}]"#),
            None => r#""]]]],{}]"#.to_owned(),
        };
        // A constant block is the same for all units of all threads.
        let mut make = |_| match plan.ids {
            Ids::Constant => {
                let mut same = Rng::new(plan.seed, 5_000_000);
                BlockQuery::new(plan.shape, plan.ids, &before, &after, &mut same)
            }
            _ => BlockQuery::new(plan.shape, plan.ids, &before, &after, &mut rng),
        };
        let blocks = (0..units).map(&mut make).collect();
        Units { blocks, ids: plan.ids, rng, counters }
    }

    fn count(&self, part: &OperationPart) {
        self.counters.transactions.fetch_add(part.detail, Ordering::Relaxed);
        self.counters.bytes.fetch_add(part.record, Ordering::Relaxed);
    }
}

impl Workload for Units {
    fn next(&mut self, place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        let block = &mut self.blocks[place];
        if self.ids == Ids::Fresh {
            block.randomize(&mut self.rng);
        }
        query.extend_from_slice(block.query());
        let (record, detail) = (block.block_bytes as u64, block.transactions as u64);
        Some(OperationPart { record, detail, ..OperationPart::default() })
    }

    fn judge(&mut self, part: &OperationPart, body: &[u8], _: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        let result = match answer::check_write(body) {
            Ok(result) => result,
            Err(failure) if self.ids == Ids::Constant && is_conflict(&failure) => {
                self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
                self.count(part);
                return Verdict::Done;
            }
            Err(failure) => return Verdict::Failed(failure),
        };
        if result["inserted"].as_u64() != Some(1) {
            let what = format!("one block was sent, the server says {result}");
            return Verdict::Failed(Failure::new(FailureKind::WrongAnswer, what));
        }
        self.count(part);
        Verdict::Done
    }
}

fn is_conflict(failure: &Failure) -> bool {
    failure.kind == FailureKind::WriteError && failure.message.starts_with("Duplicate primary key")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::blocks::block::BlockSize;
    use crate::blocks::transaction::Schema;

    #[test]
    fn a_unit_inserts_the_text_of_a_block() {
        let size = BlockSize::Transactions(2);
        let plan = UnitPlan {
            shape: BlockShape { schema: Schema::V0_0_1, size, voters: 4 },
            ids: Ids::Fresh,
            table: ("bigchain".into(), "bigchain".into()),
            durability: Some("soft".into()),
            seed: 1,
        };
        let counters = Arc::new(BlockCounters::default());
        let mut units = Units::new(&plan, 0, 2, Arc::clone(&counters));
        let mut query = Vec::new();
        let part = units.next(1, &mut query).expect("a block");
        let query: Value = serde_json::from_slice(&query).expect("JSON");
        let text = query[1][1][1][1][0].as_str().expect("text");
        assert_eq!(
            query,
            json!([1, [56, [[15, [[14, ["bigchain"]], "bigchain"]], [98, [text]]],
                {"durability": "soft"}], {}])
        );
        let inserted = br#"{"t":1,"r":[{"errors":0,"inserted":1}]}"#;
        assert_eq!(units.judge(&part, inserted, CheckDepth::Head, &mut Vec::new()), Verdict::Done);
        assert_eq!((counters.transactions(), counters.bytes()), (2, text.len() as u64));
        let conflict = br#"{"t":1,"r":[{"errors":1,"first_error":"Duplicate primary key `id`:"}]}"#;
        let verdict = units.judge(&part, conflict, CheckDepth::Head, &mut Vec::new());
        assert!(matches!(verdict, Verdict::Failed(_)));
    }
}
