//! What machine, client and servers have used, before a run and after it.

use std::time::Instant;

use serde_json::Value;

use crate::machine::cgroup::Quota;
use crate::machine::watch::Watched;
use crate::machine::{own, whole};
use crate::result::RunResult;
use crate::sweep::run::Surroundings;

/// Counters of machine, client and servers at one moment.
pub(super) struct Mark {
    at: Instant,
    busy_seconds: Option<f64>,
    own_seconds: f64,
    pub(super) servers_seconds: Option<f64>,
    /// The same if all of them are processes of this machine.
    local_seconds: Option<f64>,
    /// What each of them has sent to others.
    link_bytes: Option<Vec<u64>>,
}

impl Mark {
    pub(super) fn now(servers: &[Watched]) -> Mark {
        let samples: Vec<_> = servers.iter().map(Watched::sample).collect();
        Mark {
            at: Instant::now(),
            busy_seconds: whole::busy_seconds(),
            own_seconds: own::cpu().seconds,
            servers_seconds: samples.iter().map(|sample| sample.cpu_seconds).sum(),
            local_seconds: servers
                .iter()
                .zip(&samples)
                .map(|(server, sample)| server.pid.and(sample.cpu_seconds))
                .sum(),
            link_bytes: samples.iter().map(|sample| sample.link_sent_bytes).collect(),
        }
    }

    /// Growth of a counter per second since `before`.
    pub(super) fn since(&self, before: &Mark, counter: impl Fn(&Mark) -> Option<f64>) -> Option<f64> {
        let grown = counter(self)? - counter(before)?;
        Some(grown / (self.at - before.at).as_secs_f64().max(1e-9))
    }

    /// What happened around `result`, which was measured between this mark and `after` while nodes had `quota`.
    pub(super) fn until(&self, after: &Mark, result: &RunResult, quota: Option<Quota>) -> Surroundings {
        let others = |mark: &Mark| Some(mark.busy_seconds? - mark.own_seconds - mark.local_seconds?);
        let operations: u64 = match result.runs.len() {
            0 => result.series.points.iter().map(|point| point.ok).sum(),
            // Those before the timed ones are between the marks too.
            timed => timed as u64 + result.settings.get("warm").and_then(Value::as_u64).unwrap_or(0),
        };
        let sent = self.link_bytes.as_ref().zip(after.link_bytes.as_ref());
        let per_operation =
            |(before, after): (&u64, &u64)| after.saturating_sub(*before) as f64 / operations as f64;
        Surroundings {
            quota,
            others_core_share: after.since(self, others).map(|share| share.max(0.0)),
            link_bytes_per_operation: sent
                .filter(|_| operations > 0)
                .map(|(before, after)| before.iter().zip(after).map(per_operation).collect()),
        }
    }
}
