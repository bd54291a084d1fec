//! The kinds of queries that are compared, in pairs, and what their costs say.

use crate::result::{ClientUse, OperationResult};

/// A table with one shard.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// One kind of query, and who is asked.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Of YCSB's command line.
    pub(super) words: &'static str,
    pub(super) table: Table,
    /// Whether the server is asked that holds the primary replica.
    pub(super) is_local: bool,
}

const GET: &str = "c --read-mode single";
const UPDATE: &str = "a -p readproportion=0 -p updateproportion=1 --durability hard";

/// A pair of kinds, the cheaper one first, and how many times as much the other may cost.
pub(super) struct Pair {
    name: &'static str,
    pub(super) kinds: [Kind; 2],
    at_most: f64,
}

pub(super) const PAIRS: [Pair; 2] = [
    Pair {
        name: "get, forwarded by local",
        kinds: [
            Kind { name: "GET-LOCAL", words: GET, table: Table::OneReplica, is_local: true },
            Kind { name: "GET-FORWARDED", words: GET, table: Table::OneReplica, is_local: false },
        ],
        at_most: 2.3,
    },
    Pair {
        name: "hard update, two replicas by one",
        kinds: [
            Kind { name: "UPDATE-ONE", words: UPDATE, table: Table::OneReplica, is_local: true },
            Kind { name: "UPDATE-TWO", words: UPDATE, table: Table::TwoReplicas, is_local: true },
        ],
        at_most: 3.0,
    },
];

/// What one run came to.
pub(super) struct Run {
    /// Its processor time is that of both servers.
    pub(super) operation: OperationResult,
    pub(super) client: ClientUse,
    pub(super) seconds: f64,
}

impl Run {
    pub(super) fn cpu(&self) -> f64 {
        self.operation.server_cpu_us_per_operation.unwrap_or(f64::NAN)
    }
}

/// The one in the middle by `figure`, of an even number the greater of two.
pub(super) fn middle<T>(mut all: Vec<T>, figure: impl Fn(&T) -> f64) -> T {
    all.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    all.swap_remove(all.len() / 2)
}

/// The ratio of a pair in words, and whether it is within its bar.
pub(super) fn verdict(pair: &Pair, of_both: &[Vec<Run>]) -> (String, bool) {
    let ratios: Vec<f64> =
        of_both[0].iter().zip(&of_both[1]).map(|(less, more)| more.cpu() / less.cpu()).collect();
    let rounds: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    let found = middle(ratios, |ratio| *ratio);
    let is_held = found <= pair.at_most;
    let held = if is_held { "held" } else { "MISSED" };
    let text = format!(
        "{}: {found:.2} times the server CPU (rounds {}), at most {} wanted: {held}",
        pair.name,
        rounds.join(" "),
        pair.at_most
    );
    (text, is_held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(costs: &[f64]) -> Vec<Run> {
        let operation = |cost: f64| OperationResult {
            name: String::new(),
            ok: 1,
            failed: 0,
            per_second: 1.0,
            service: Default::default(),
            intended: None,
            failed_service: None,
            server_cpu_us_per_operation: Some(cost),
        };
        let run =
            |cost: &f64| Run { operation: operation(*cost), client: ClientUse::default(), seconds: 1.0 };
        costs.iter().map(run).collect()
    }

    #[test]
    fn the_ratio_in_the_middle_is_held_against_the_bar() {
        let [gets, updates] = &PAIRS;
        // Ratios of 2, 2.5 and 2.2: those of the middle runs would be 2.5.
        let both = [runs(&[10.0, 10.0, 20.0]), runs(&[20.0, 25.0, 44.0])];
        let (text, is_held) = verdict(gets, &both);
        assert!(is_held && text.contains("2.20 times the server CPU (rounds 2.00 2.50 2.20)"), "{text}");
        let (text, is_held) = verdict(updates, &[runs(&[10.0, 10.0]), runs(&[20.0, 31.0])]);
        assert!(!is_held && text.contains("3.10") && text.ends_with("MISSED"), "{text}");
    }
}
