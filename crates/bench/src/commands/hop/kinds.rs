//! The kinds of queries that are compared in pairs, and the verdicts on their costs.

use super::cpu_time;
use crate::result::{OperationResult, RunResult};

/// A table with one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    OneReplica,
    TwoReplicas,
}

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Table::OneReplica => "one",
            Table::TwoReplicas => "two",
        }
    }

    pub(super) fn replicas(self) -> usize {
        match self {
            Table::OneReplica => 1,
            Table::TwoReplicas => 2,
        }
    }
}

/// The server that receives the queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipient {
    Leader,
    Other,
}

/// One kind of query and the server that receives it.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Arguments for the YCSB command.
    pub(super) words: &'static str,
    pub(super) table: Table,
    pub(super) asked: Recipient,
}

const GET: &str = "c --read-mode single";
const UPDATE: &str = "a -p readproportion=0 -p updateproportion=1 --durability hard";

/// Two kinds, of which the second involves another server, and the allowed ratio of their costs.
pub(super) struct Pair {
    pub(super) kinds: [Kind; 2],
    /// Their descriptions in a sentence.
    phrases: [&'static str; 2],
    at_most: f64,
}

pub(super) const PAIRS: [Pair; 2] = [
    Pair {
        kinds: [
            Kind { name: "GET-LOCAL", words: GET, table: Table::OneReplica, asked: Recipient::Leader },
            Kind { name: "GET-FORWARDED", words: GET, table: Table::OneReplica, asked: Recipient::Other },
        ],
        phrases: ["of a local one", "a forwarded get"],
        at_most: 2.3,
    },
    Pair {
        kinds: [
            Kind { name: "UPDATE-ONE", words: UPDATE, table: Table::OneReplica, asked: Recipient::Leader },
            Kind { name: "UPDATE-TWO", words: UPDATE, table: Table::TwoReplicas, asked: Recipient::Leader },
        ],
        phrases: ["of one with one", "a hard update with two replicas"],
        at_most: 3.0,
    },
];

/// The outcome of one run.
pub(super) struct Run {
    /// Processor time of both servers per query.
    pub(super) cpu_us: f64,
    /// Processor time of both servers in total.
    pub(super) cpu_seconds: f64,
    /// The use of one core by programs other than client and servers.
    pub(super) others_core_share: Option<f64>,
    /// The measured operation, named after the kind.
    pub(super) operation: OperationResult,
    pub(super) result: RunResult,
}

/// The median by `figure`; for an even number the greater of the two in the middle.
pub(super) fn middle<T>(mut all: Vec<T>, figure: impl Fn(&T) -> f64) -> T {
    all.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    all.swap_remove(all.len() / 2)
}

/// The verdict on the runs of a pair, and whether it is within its limit.
pub(super) fn judge(pair: &Pair, [less, more]: &[Vec<Run>; 2]) -> (String, bool) {
    let used = less.iter().chain(more).map(|run| run.cpu_seconds);
    verdict(pair, less.iter().zip(more).map(|(l, m)| [l.cpu_us, m.cpu_us]), cpu_time::too_little(used))
}

/// The verdict on the costs of each round in microseconds; or, with `why_none`, that reason for having no verdict.
fn verdict(pair: &Pair, rounds: impl Iterator<Item = [f64; 2]>, why_none: Option<String>) -> (String, bool) {
    let [less, more] = pair.phrases;
    if let Some(why) = why_none {
        return (format!("{more}: invalid: {why}"), false);
    }
    let ratios: Vec<f64> = rounds.map(|[less, more]| more / less).collect();
    let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    let found = middle(ratios, |ratio| *ratio);
    let is_held = found <= pair.at_most;
    let held = if is_held { "held" } else { "MISSED" };
    let text = format!(
        "{more} takes {found:.2} times the server CPU {less} (rounds {}), at most {} wanted: {held}",
        shown.join(" "),
        pair.at_most
    );
    (text, is_held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_in_the_middle_is_held_against_the_bar() {
        let [gets, updates] = &PAIRS;
        // Ratios of 2, 2.5 and 2.2: the ratio of the median costs would be 2.5.
        let (text, is_held) = verdict(gets, [[10.0, 20.0], [10.0, 25.0], [20.0, 44.0]].into_iter(), None);
        assert!(is_held && text.contains("2.20 times the server CPU of a local one (rounds 2.00 2.50 2.20)"));
        let (text, is_held) = verdict(updates, [[10.0, 20.0], [10.0, 31.0]].into_iter(), None);
        assert!(!is_held && text.contains("3.10") && text.ends_with("MISSED"), "{text}");
    }

    #[test]
    fn runs_that_were_too_short_have_no_ratio() {
        let why = Some("too little".to_owned());
        let (text, is_held) = verdict(&PAIRS[0], [[10.0, 11.0]].into_iter(), why);
        assert_eq!((text.as_str(), is_held), ("a forwarded get: invalid: too little", false));
    }
}
