//! Conditions of a run: the use of the machine by client, servers and other programs.

use std::time::Instant;

use serde_json::Value;

use crate::alarms::{DISTURBED, percent};
use crate::machine::cgroup::Quota;
use crate::machine::watch::Watched;
use crate::machine::{host_cpu, own_process};
use crate::result::{Alarm, RunResult};

/// Above this use of a core, other programs disturb a measurement.
const OTHERS_CORE_SHARE_MAX: f64 = 0.2;

/// The conditions of one run.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Processor time of programs other than client and servers, as a share of one core.
    pub others_core_share: Option<f64>,
    /// Bytes that each server sent to others, per operation of the whole cluster; `None` unless known of all.
    pub link_bytes_per_operation: Option<Vec<f64>>,
    /// The limit of each node, if any.
    pub quota: Option<Quota>,
}

/// The alarm about other programs, if they used too much of a core during any of these runs.
pub fn disturbed(others_core_shares: &[Option<f64>]) -> Option<Alarm> {
    let too_much = || others_core_shares.iter().flatten().filter(|share| **share > OTHERS_CORE_SHARE_MAX);
    let used = percent(too_much().copied().reduce(f64::max)?);
    let what = match (too_much().count(), others_core_shares.len()) {
        (_, 1) => format!("other programs used {used} of a core meanwhile"),
        (some, all) => format!("other programs used up to {used} of a core in {some} of {all} runs"),
    };
    Some(Alarm { kind: DISTURBED.to_owned(), message: format!("{what}: the machine was not quiet") })
}

/// Counters of machine, client and servers at one moment.
pub struct Mark {
    at: Instant,
    busy_seconds: Option<f64>,
    own_seconds: f64,
    /// Processor time of all servers since they started.
    pub servers_seconds: Option<f64>,
    /// The same, if all of them are processes of this machine.
    local_seconds: Option<f64>,
    /// Bytes that each of them has sent to others.
    link_bytes: Option<Vec<u64>>,
}

impl Mark {
    /// Reads the counters of this machine and of `servers`.
    pub fn now(servers: &[Watched]) -> Mark {
        let samples: Vec<_> = servers.iter().map(Watched::sample).collect();
        Mark {
            at: Instant::now(),
            busy_seconds: host_cpu::busy_seconds(),
            own_seconds: own_process::cpu().seconds,
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
    pub fn since(&self, before: &Mark, counter: impl Fn(&Mark) -> Option<f64>) -> Option<f64> {
        let grown = counter(self)? - counter(before)?;
        Some(grown / (self.at - before.at).as_secs_f64().max(1e-9))
    }

    /// The conditions of `result`, which was measured between this mark and `after` while nodes had `quota`.
    pub fn until(&self, after: &Mark, result: &RunResult, quota: Option<Quota>) -> Conditions {
        let operations: u64 = match result.runs.len() {
            0 => result.series.points.iter().map(|point| point.ok).sum(),
            // Includes the untimed runs, which are also between the marks.
            timed => timed as u64 + result.settings.get("warm").and_then(Value::as_u64).unwrap_or(0),
        };
        let sent = self.link_bytes.as_ref().zip(after.link_bytes.as_ref());
        let per_operation =
            |(before, after): (&u64, &u64)| after.saturating_sub(*before) as f64 / operations as f64;
        Conditions {
            quota,
            others_core_share: self.others_until(after),
            link_bytes_per_operation: sent
                .filter(|_| operations > 0)
                .map(|(before, after)| before.iter().zip(after).map(per_operation).collect()),
        }
    }

    /// Processor time of programs other than this one and the servers, between this mark and `after`, as a share of one
    /// core; `None` unless all servers are processes of this machine and are still running.
    pub fn others_until(&self, after: &Mark) -> Option<f64> {
        let others = |mark: &Mark| Some(mark.busy_seconds? - mark.own_seconds - mark.local_seconds?);
        after.since(self, others).map(|share| share.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mark(at: Instant, busy_seconds: f64, local_seconds: Option<f64>) -> Mark {
        Mark {
            at,
            busy_seconds: Some(busy_seconds),
            own_seconds: 1.0,
            servers_seconds: local_seconds,
            local_seconds,
            link_bytes: None,
        }
    }

    #[test]
    fn other_programs_used_the_remaining_processor_time() {
        let now = Instant::now();
        let before = mark(now, 10.0, Some(2.0));
        let later = now + Duration::from_secs(10);
        assert_eq!(before.others_until(&mark(later, 30.0, Some(3.0))), Some(1.9));
        assert_eq!(before.others_until(&mark(later, 11.0, Some(4.0))), Some(0.0), "clocks differ a little");
        assert_eq!(before.others_until(&mark(later, 30.0, None)), None, "a server has ended");
    }

    #[test]
    fn load_of_other_programs_is_reported() {
        let said = |shares: &[Option<f64>]| disturbed(shares).map(|alarm| (alarm.kind, alarm.message));
        let alarm = |text: &str| Some((DISTURBED.to_owned(), text.to_owned()));
        assert_eq!(said(&[Some(0.2)]), None);
        assert_eq!(said(&[None]), None);
        assert_eq!(
            said(&[Some(1.9)]),
            alarm("other programs used 190 % of a core meanwhile: the machine was not quiet")
        );
        assert_eq!(
            said(&[Some(0.1), Some(0.3), None, Some(0.9)]),
            alarm("other programs used up to 90 % of a core in 2 of 4 runs: the machine was not quiet")
        );
    }
}
