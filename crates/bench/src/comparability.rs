//! Selects the published series that a run can be compared with: only one that was measured in the same way.

use crate::drive::session::{LoopKind, Plan};
use crate::result::Published;

/// Connections per server in the published YCSB runs.
const CONNECTIONS_PER_SERVER: usize = 128;
/// Bytes of a published block.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 850_000..=950_000;

/// A published series and the differences of this run from it.
#[derive(Clone, Debug)]
pub struct Candidate {
    published: Published,
    differences: Vec<String>,
}

impl Candidate {
    /// The series `workload` of `report`, for a run against `servers`.
    pub fn new(report: &str, workload: &str, servers: usize) -> Self {
        let published = Published { report: report.to_owned(), workload: workload.to_owned(), servers };
        Candidate { published, differences: Vec::new() }
    }

    /// Records the difference `how` if `differs`.
    pub fn add_difference(&mut self, differs: bool, how: impl Into<String>) {
        if differs {
            self.differences.push(how.into());
        }
    }

    /// Compares how operations were sent with the published YCSB runs.
    pub fn compare_pacing(&mut self, plan: &Plan) {
        let expected = CONNECTIONS_PER_SERVER * self.published.servers;
        let found = plan.connections;
        self.add_difference(found != expected, format!("{found} connections instead of {expected}"));
        self.add_difference(plan.pipeline != 1, format!("pipeline {} instead of 1", plan.pipeline));
        self.compare_loop(plan);
    }

    /// Compares the kind of loop: published runs used a closed one.
    pub fn compare_loop(&mut self, plan: &Plan) {
        self.add_difference(!matches!(plan.kind, LoopKind::Closed), "an open loop instead of a closed one");
    }

    /// Compares the mean size of a block with the published one.
    pub fn compare_block(&mut self, bytes: u64) {
        let found = bytes / 1_000;
        self.add_difference(
            !BLOCK_BYTES.contains(&bytes),
            format!("blocks of {found} KB instead of about 900"),
        );
    }

    /// The series if the run has no differences; otherwise `None`, with a note that lists them.
    pub fn settle(self, notes: &mut Vec<String>) -> Option<Published> {
        if self.differences.is_empty() {
            return Some(self.published);
        }
        let Published { report, workload, .. } = self.published;
        notes.push(format!(
            "not compared with the published {workload} of {report}: {}",
            self.differences.join(", ")
        ));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Candidate;

    #[test]
    fn only_a_similar_run_is_compared_with_a_published_one() {
        let mut notes = Vec::new();
        let mut like = Candidate::new("r", "w", 1);
        like.compare_block(900_000);
        assert!(like.settle(&mut notes).is_some() && notes.is_empty());
        let mut unlike = Candidate::new("r", "w", 1);
        unlike.compare_block(849_999);
        unlike.add_difference(true, "soft durability");
        assert!(unlike.settle(&mut notes).is_none());
        assert_eq!(
            notes,
            [
                "not compared with the published w of r: blocks of 849 KB instead of about 900, soft durability"
            ]
        );
    }
}
