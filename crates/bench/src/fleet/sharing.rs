//! How the nodes of a fleet and the client share the cores of one machine.

use anyhow::Error;

use crate::machine::batch_scheduling::{self, BATCH};
use crate::machine::cgroup::CpuGroups;

/// The limits and the scheduling that are in effect, and why others are not.
#[derive(Debug, Default)]
pub struct Sharing {
    /// The control groups that limit nodes to equal shares.
    pub groups: Option<CpuGroups>,
    /// Why `groups` is `None`.
    pub why_none: Option<String>,
    /// `batch` if nodes and client do not preempt each other: `docs/decisions/0016-benchmark-cpu-quotas.md`.
    pub scheduling: Option<&'static str>,
    /// Why they do, although nodes have equal shares.
    pub why_not_batch: Option<String>,
}

impl Sharing {
    /// Creates control groups for nodes with `share` of a core, and schedules this program and all that it starts from
    /// now on as batch work. Does nothing without a share.
    pub fn begin(share: Option<f64>) -> Sharing {
        if share.is_none() {
            return Sharing::none("no quota was asked for");
        }
        let groups = match CpuGroups::open() {
            Ok(groups) => groups,
            Err(error) => return Sharing::none(&format!("{:#}", Error::new(error))),
        };
        let scheduled = batch_scheduling::schedule_as_batch();
        Sharing {
            groups: Some(groups),
            why_none: None,
            scheduling: scheduled.is_ok().then_some(BATCH),
            why_not_batch: scheduled.err().map(|error| format!("{:#}", Error::new(error))),
        }
    }

    /// Nothing is set up, for this reason.
    pub fn none(why: &str) -> Sharing {
        Sharing { why_none: Some(why.to_owned()), ..Sharing::default() }
    }

    /// Warnings about what could not be set up.
    pub fn warnings(&self) -> Vec<String> {
        let groups = self.why_none.iter().map(|why| format!("no equal shares of processor time: {why}"));
        let batch = self.why_not_batch.iter().map(|why| {
            format!("no batch scheduling: {why}; nodes and client will take a core from each other, most of all in large clusters")
        });
        groups.chain(batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Sharing;

    #[test]
    fn failed_arrangements_are_reported_with_the_reason() {
        assert_eq!(
            Sharing::begin(None).warnings(),
            ["no equal shares of processor time: no quota was asked for"]
        );
        let refused = Sharing { why_not_batch: Some("no chrt".to_owned()), ..Sharing::default() };
        assert!(refused.warnings()[0].starts_with("no batch scheduling: no chrt; "));
    }
}
