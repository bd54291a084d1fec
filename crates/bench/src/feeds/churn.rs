//! Opens and closes feeds, one after the other.

use client::answer::{self, Failure, FailureKind, PARTIAL, SEQUENCE};
use serde_json::{Value, json};

use super::block::Block;
use super::kind::FeedKind;
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};

/// Opens a feed with `changes` and closes it with STOP. Together they are one operation.
pub struct Churn {
    kinds: Vec<FeedKind>,
    blocks: u32,
    table: Value,
    opened: u64,
}

impl Churn {
    /// Feeds of `kinds` in turns, each of the next of `blocks` blocks of rows of `table`.
    pub fn new(kinds: Vec<FeedKind>, blocks: u32, table: Value) -> Churn {
        Churn { kinds, blocks, table, opened: 0 }
    }
}

impl Workload for Churn {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        let kind = self.kinds[(self.opened % self.kinds.len() as u64) as usize];
        let block = Block((self.opened % u64::from(self.blocks)) as u32);
        self.opened += 1;
        query.extend_from_slice(b"[1,");
        query.extend_from_slice(kind.changes(&self.table, block, &json!({})).to_string().as_bytes());
        query.extend_from_slice(b",{}]");
        Some(OperationPart { record: self.opened, ..OperationPart::default() })
    }

    fn judge(&mut self, _: &OperationPart, body: &[u8], _: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        match answer::type_at_head(body) {
            Some(PARTIAL) => Verdict::Stop,
            Some(SEQUENCE) => Verdict::Done,
            _ => Verdict::Failed(match answer::parse(body) {
                Ok(other) => {
                    Failure::new(FailureKind::WrongAnswer, format!("a response of type {}", other.t))
                }
                Err(failure) => failure,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_feed_is_stopped() {
        let mut churn = Churn::new(vec![FeedKind::Document], 2, json!([15, ["t"]]));
        let mut query = Vec::new();
        let part = churn.next(0, &mut query).expect("a query");
        assert_eq!(query, br#"[1,[152,[[16,[[15,["t"]],0]]],{}],{}]"#);
        let mut judge = |body: &[u8]| churn.judge(&part, body, CheckDepth::Head, &mut Vec::new());
        assert_eq!(judge(br#"{"t":3,"r":[],"n":[2]}"#), Verdict::Stop);
        assert_eq!(judge(br#"{"t":2,"r":[]}"#), Verdict::Done);
        assert!(matches!(judge(br#"{"t":18,"e":1000000,"r":["no"]}"#), Verdict::Failed(_)));
    }
}
