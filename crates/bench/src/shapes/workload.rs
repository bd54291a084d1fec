//! Sends the queries of one shape over the connections of one client thread, and checks the responses.

use std::collections::HashMap;

use client::answer::{self, ATOM, Failure, FailureKind, PARTIAL, SEQUENCE};
use serde_json::Value;

use super::shape::{Expects, QueryValues, Shape, ShapeQuery};
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};

/// Sends queries of one shape and checks the responses.
pub struct ShapeWorkload {
    shape: &'static Shape,
    draw: QueryValues,
    asked: u64,
    /// The expected response of each query in flight, and the batches of it so far.
    awaited: HashMap<u64, (Expects, Vec<Value>)>,
}

impl ShapeWorkload {
    /// Sends queries of `shape` with values from `draw`.
    pub fn new(shape: &'static Shape, draw: QueryValues) -> ShapeWorkload {
        ShapeWorkload { shape, draw, asked: 0, awaited: HashMap::new() }
    }

    fn whole(&mut self, number: u64, mut items: Vec<Value>) -> Verdict {
        let Some((expects, mut before)) = self.awaited.remove(&number) else {
            return wrong("a response without a request");
        };
        before.append(&mut items);
        match expects.check(&before) {
            Ok(()) => Verdict::Done,
            Err(why) => wrong(&why),
        }
    }

    fn failed(&mut self, part: &OperationPart, failure: Failure) -> Verdict {
        self.awaited.remove(&part.record);
        Verdict::Failed(failure)
    }
}

impl Workload for ShapeWorkload {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        let ShapeQuery { query: term, expects } = (self.shape.ask)(&mut self.draw);
        self.asked += 1;
        self.awaited.insert(self.asked, (expects, Vec::new()));
        query.extend_from_slice(b"[1,");
        query.extend_from_slice(term.to_string().as_bytes());
        query.extend_from_slice(b",{}]");
        Some(OperationPart { record: self.asked, ..OperationPart::default() })
    }

    fn judge(
        &mut self,
        part: &OperationPart,
        body: &[u8],
        depth: CheckDepth,
        _follow: &mut Vec<u8>,
    ) -> Verdict {
        let is_write = self.awaited.get(&part.record).is_some_and(|(wanted, _)| *wanted == Expects::Inserted);
        let looks_good = !is_write || answer::counts_no_errors(body);
        match answer::type_at_head(body) {
            Some(ATOM | SEQUENCE) if depth == CheckDepth::Head && looks_good => {
                self.awaited.remove(&part.record);
                return Verdict::Done;
            }
            Some(PARTIAL) if depth == CheckDepth::Head => {
                // Rows of a batch that is not parsed cannot be counted.
                if let Some((expects, _)) = self.awaited.get_mut(&part.record) {
                    *expects = Expects::Anything;
                }
                return Verdict::More;
            }
            _ => {}
        }
        let parsed = match answer::parse(body) {
            Ok(parsed) => parsed,
            Err(failure) => return self.failed(part, failure),
        };
        if parsed.t == PARTIAL {
            if let Some((_, items)) = self.awaited.get_mut(&part.record) {
                items.extend(parsed.r);
            }
            return Verdict::More;
        }
        match is_write.then(|| answer::check_write(body)) {
            Some(Err(failure)) => self.failed(part, failure),
            _ => self.whole(part.record, parsed.r),
        }
    }
}

fn wrong(why: &str) -> Verdict {
    Verdict::Failed(Failure::new(FailureKind::WrongAnswer, why))
}

#[cfg(test)]
mod tests {
    use super::super::shape::SHAPES;
    use super::*;
    use crate::rng::Rng;

    fn workload(shape: usize) -> (ShapeWorkload, OperationPart) {
        let draw = QueryValues { rng: Rng::new(1, 1), rows: 10_000, next_insert: 0, insert_step: 1 };
        let mut workload = ShapeWorkload::new(&SHAPES[shape], draw);
        let mut query = Vec::new();
        let part = workload.next(0, &mut query).expect("a query");
        assert!(serde_json::from_slice::<Value>(&query).is_ok_and(|query| query[0] == 1));
        (workload, part)
    }

    #[track_caller]
    fn judged(workload: &mut ShapeWorkload, part: &OperationPart, body: &str, depth: CheckDepth) -> Verdict {
        workload.judge(part, body.as_bytes(), depth, &mut Vec::new())
    }

    fn rows(t: u8, count: usize) -> String {
        format!(r#"{{"t":{t},"r":[{}],"n":[]}}"#, vec![r#"{"id":"x"}"#; count].join(","))
    }

    #[test]
    fn all_rows_must_come_whether_in_one_batch_or_in_two() {
        let (mut workload, part) = workload(0);
        assert_eq!(judged(&mut workload, &part, &rows(2, 20), CheckDepth::Whole), Verdict::Done);
        let (mut workload, part) = self::workload(0);
        assert_eq!(judged(&mut workload, &part, &rows(3, 8), CheckDepth::Whole), Verdict::More);
        assert_eq!(judged(&mut workload, &part, &rows(2, 12), CheckDepth::Whole), Verdict::Done);
        let (mut workload, part) = self::workload(0);
        assert!(matches!(judged(&mut workload, &part, &rows(2, 19), CheckDepth::Whole), Verdict::Failed(_)));
        let (mut workload, part) = self::workload(0);
        assert_eq!(judged(&mut workload, &part, &rows(3, 8), CheckDepth::Head), Verdict::More);
        assert_eq!(judged(&mut workload, &part, &rows(2, 12), CheckDepth::Whole), Verdict::Done);
        assert!(workload.awaited.is_empty());
    }

    #[test]
    fn a_duplicate_insert_and_an_error_are_failures_without_parsing() {
        let met = r#"{"t":1,"r":[{"errors":1,"inserted":0,"first_error":"Duplicate primary key `id`:"}]}"#;
        let (mut workload, part) = workload(2);
        let Verdict::Failed(failure) = judged(&mut workload, &part, met, CheckDepth::Head) else {
            panic!("good")
        };
        assert_eq!(failure.kind, FailureKind::WriteError);
        let (mut workload, part) = self::workload(3);
        let error = r#"{"t":18,"e":4100000,"r":["Table `a.b` does not exist."],"b":[]}"#;
        let Verdict::Failed(failure) = judged(&mut workload, &part, error, CheckDepth::Head) else {
            panic!("good")
        };
        assert_eq!(failure.kind, FailureKind::OpFailed);
        assert!(workload.awaited.is_empty());
    }
}
