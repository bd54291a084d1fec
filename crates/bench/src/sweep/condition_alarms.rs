//! Alarms about the conditions of a run in a sweep: other programs, the nodes' shares, too short a run.

use super::run::SweepRun;
use crate::alarms::{TOO_SHORT, percent};
use crate::conditions::disturbed;
use crate::machine::cgroup::Quota;
use crate::result::Alarm;

/// Above this share of waiting time, the client may keep nodes waiting.
const CLIENT_WAITING_SHARE_MAX: f64 = 0.3;
/// Nodes that use this much of their shares were busy, however long the client waited.
const SHARE_USED_MIN: f64 = 0.9;
/// Nodes may start with the processor time of one period and end in the middle of another; with fewer periods the error
/// matters.
const PERIODS_MIN: f64 = 20.0;
/// Processor time is counted in hundredths of a second, in two parts, for each node: below this the error is above ten
/// percent.
const NODE_CPU_SECONDS_MIN: f64 = 0.1;

/// All alarms about the conditions of `run`.
pub(super) fn alarms(run: &SweepRun) -> impl Iterator<Item = Alarm> {
    let alarm = |(kind, message): (&str, String)| Alarm { kind: kind.to_owned(), message };
    let of_run = [client_waited(run), too_short(run)].into_iter().flatten().map(alarm);
    disturbed(&[run.conditions.others_core_share]).into_iter().chain(of_run)
}

/// If nodes have not used their shares, and the client had to wait for a core, the client was the bottleneck.
fn client_waited(run: &SweepRun) -> Option<(&'static str, String)> {
    let waited = run.result.client.waiting_share.filter(|share| *share > CLIENT_WAITING_SHARE_MAX)?;
    let used = share_used(run, run.conditions.quota?).filter(|used| *used < SHARE_USED_MIN)?;
    let message = format!(
        "the client waited for a core for {} of its time while the nodes used {} of their shares: the client, not the \
         shares, may be the limit; take fewer nodes at once or a smaller --core-share, on a quiet machine",
        percent(waited),
        percent(used)
    );
    Some(("client-waited", message))
}

fn too_short(run: &SweepRun) -> Option<(&'static str, String)> {
    let seconds = run.result.time.measured_seconds;
    let periods = run.conditions.quota.map(|quota| seconds * 1e6 / quota.period_us as f64);
    if let Some(periods) = periods.map(f64::floor).filter(|periods| *periods < PERIODS_MIN) {
        let message = format!(
            "{periods:.0} periods of the shares were measured: in fewer than {PERIODS_MIN:.0} nodes may have had more \
             than their shares; take more --seconds"
        );
        return Some((TOO_SHORT, message));
    }
    let least = NODE_CPU_SECONDS_MIN * run.nodes as f64;
    let used = cpu_seconds(run).filter(|used| *used < least)?;
    let message = format!(
        "the servers used {used:.2} s of processor time, which is counted in hundredths for each: CPU per operation needs \
         {least:.1} s; take more --seconds"
    );
    Some((TOO_SHORT, message))
}

/// The share of their processor time that nodes have used.
fn share_used(run: &SweepRun, quota: Quota) -> Option<f64> {
    let granted = quota.quota_us as f64 / quota.period_us as f64 * run.nodes as f64;
    Some(cpu_seconds(run)? / run.result.time.measured_seconds.max(1e-9) / granted)
}

fn cpu_seconds(run: &SweepRun) -> Option<f64> {
    let servers = &run.result.servers;
    servers.iter().map(|server| server.cpu_seconds).sum::<Option<f64>>().filter(|_| !servers.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::assemble::{RunDescription, blank};
    use crate::conditions::Conditions;
    use crate::result::ServerUse;
    use crate::sweep::run::Workload;

    /// The kinds of alarms for a run of two nodes with 7 % of a core each.
    fn kinds(seconds: f64, used_of_share: f64, client_waited: f64) -> Vec<String> {
        let mut result = blank(RunDescription {
            kind: "ycsb-run",
            workload: String::new(),
            name: String::new(),
            label: String::new(),
            published: None,
            seed: 1,
            settings: serde_json::Map::new(),
            notes: Vec::new(),
            started: SystemTime::now(),
        });
        let cpu_seconds = Some(0.07 * seconds * used_of_share);
        result.servers = vec![ServerUse { cpu_seconds, ..ServerUse::default() }; 2];
        result.time.measured_seconds = seconds;
        result.client.waiting_share = Some(client_waited);
        let quota = Some(Quota::of_core(0.07));
        let around = Conditions { quota, ..Conditions::default() };
        let run = SweepRun {
            workload: Workload::CSync,
            round: 0,
            nodes: 2,
            shards: 2,
            replicas: 2,
            result,
            conditions: around,
        };
        alarms(&run).map(|alarm| alarm.kind).collect()
    }

    #[test]
    fn a_client_that_waits_while_nodes_do_is_the_limit() {
        assert_eq!(kinds(10.0, 0.66, 0.66), ["client-waited"]);
        // Nodes that use their full shares are the bottleneck themselves.
        assert_eq!(kinds(10.0, 0.92, 0.66), [""; 0]);
        // The bottleneck is something else: a disk, or the network.
        assert_eq!(kinds(10.0, 0.66, 0.1), [""; 0]);
    }

    #[test]
    fn a_run_with_too_few_periods_or_clock_ticks_is_too_short() {
        assert_eq!(kinds(0.3, 1.0, 0.0), ["too-short"]);
        assert_eq!(kinds(3.0, 1.0, 0.0), [""; 0]);
        // Too few ticks of the clock that counts processor time.
        assert_eq!(kinds(3.0, 0.1, 0.0), ["too-short"]);
    }
}
