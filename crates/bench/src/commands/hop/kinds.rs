//! The kinds of queries that are compared, in pairs, and what their costs say.

use super::enough;
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

/// Which of the two servers is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// That which leads the shard.
    Leader,
    Other,
}

/// One kind of query, and who is asked.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Of YCSB's command line.
    pub(super) words: &'static str,
    pub(super) table: Table,
    pub(super) asked: Asked,
}

const GET: &str = "c --read-mode single";
const UPDATE: &str = "a -p readproportion=0 -p updateproportion=1 --durability hard";

/// Two kinds of which the second takes another server, and how many times as much it may cost.
pub(super) struct Pair {
    pub(super) kinds: [Kind; 2],
    /// What they are called in a sentence.
    phrases: [&'static str; 2],
    at_most: f64,
}

pub(super) const PAIRS: [Pair; 2] = [
    Pair {
        kinds: [
            Kind { name: "GET-LOCAL", words: GET, table: Table::OneReplica, asked: Asked::Leader },
            Kind { name: "GET-FORWARDED", words: GET, table: Table::OneReplica, asked: Asked::Other },
        ],
        phrases: ["of a local one", "a forwarded get"],
        at_most: 2.3,
    },
    Pair {
        kinds: [
            Kind { name: "UPDATE-ONE", words: UPDATE, table: Table::OneReplica, asked: Asked::Leader },
            Kind { name: "UPDATE-TWO", words: UPDATE, table: Table::TwoReplicas, asked: Asked::Leader },
        ],
        phrases: ["of one with one", "a hard update with two replicas"],
        at_most: 3.0,
    },
];

/// What one run came to.
pub(super) struct Run {
    /// Processor time of both servers for one query.
    pub(super) cpu_us: f64,
    /// Processor time of both servers for all of them.
    pub(super) cpu_seconds: f64,
    /// What programs beside client and servers used meanwhile, of one core.
    pub(super) others_core_share: Option<f64>,
    /// The queries, under the name of their kind.
    pub(super) operation: OperationResult,
    /// All else.
    pub(super) result: RunResult,
}

/// The one in the middle by `figure`, of an even number the greater of two.
pub(super) fn middle<T>(mut all: Vec<T>, figure: impl Fn(&T) -> f64) -> T {
    all.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    all.swap_remove(all.len() / 2)
}

/// What the runs of a pair, round after round, say, and whether that is within its bar.
pub(super) fn judge(pair: &Pair, [less, more]: &[Vec<Run>; 2]) -> (String, bool) {
    let used = less.iter().chain(more).map(|run| run.cpu_seconds);
    verdict(pair, less.iter().zip(more).map(|(l, m)| [l.cpu_us, m.cpu_us]), enough::too_little(used))
}

/// The same by the costs in each round, in microseconds, unless there is a reason why they are none.
fn verdict(pair: &Pair, rounds: impl Iterator<Item = [f64; 2]>, why_none: Option<String>) -> (String, bool) {
    let [less, more] = pair.phrases;
    if let Some(why) = why_none {
        return (format!("{more}: no figure: {why}"), false);
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
        // Ratios of 2, 2.5 and 2.2: that of the costs in the middle would be 2.5.
        let (text, is_held) = verdict(gets, [[10.0, 20.0], [10.0, 25.0], [20.0, 44.0]].into_iter(), None);
        assert!(is_held && text.contains("2.20 times the server CPU of a local one (rounds 2.00 2.50 2.20)"));
        let (text, is_held) = verdict(updates, [[10.0, 20.0], [10.0, 31.0]].into_iter(), None);
        assert!(!is_held && text.contains("3.10") && text.ends_with("MISSED"), "{text}");
    }

    #[test]
    fn runs_that_were_too_short_have_no_ratio() {
        let why = Some("too little".to_owned());
        let (text, is_held) = verdict(&PAIRS[0], [[10.0, 11.0]].into_iter(), why);
        assert_eq!((text.as_str(), is_held), ("a forwarded get: no figure: too little", false));
    }
}
