//! How the nodes of a fleet and the client share the cores of one machine.

use crate::machine::batch::{self, BATCH};
use crate::machine::cgroup::CpuGroups;

/// What was arranged, and what could not be.
#[derive(Debug, Default)]
pub struct Sharing {
    /// The control groups that give nodes the same share.
    pub groups: Option<CpuGroups>,
    /// Why there are none.
    pub why_none: Option<String>,
    /// `batch` where nobody takes a core from anybody: `docs/decisions/0016`.
    pub scheduling: Option<&'static str>,
    why_not_batch: Option<String>,
}

impl Sharing {
    /// Makes control groups for nodes that are to have `share` of a core, and sees to it that neither they nor this
    /// program take a core from each other. Where nodes have no share nothing is arranged.
    pub fn begin(share: Option<f64>) -> Sharing {
        if share.is_none() {
            return Sharing::none("no quota was asked for");
        }
        let groups = match CpuGroups::open() {
            Ok(groups) => groups,
            Err(error) => return Sharing::none(&format!("{:#}", anyhow::Error::new(error))),
        };
        let scheduled = batch::schedule_as_batch();
        Sharing {
            groups: Some(groups),
            why_none: None,
            scheduling: scheduled.is_ok().then_some(BATCH),
            why_not_batch: scheduled.err(),
        }
    }

    /// Nothing is arranged, for this reason.
    pub fn none(why: &str) -> Sharing {
        Sharing { why_none: Some(why.to_owned()), ..Sharing::default() }
    }

    /// What could not be arranged, a line each.
    pub fn complaints(&self) -> Vec<String> {
        let groups = self.why_none.iter().map(|why| format!("no equal shares of processor time: {why}"));
        let batch = self.why_not_batch.iter().map(|why| {
            format!("nodes take a core from each other for every message that arrives, which costs large clusters more: {why}")
        });
        groups.chain(batch).collect()
    }
}
