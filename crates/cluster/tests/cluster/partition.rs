//! Membership changes during a network partition that no node has noticed yet: the side with a quorum keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use log::Members;
use rekindle_cluster::DesiredShards;

use crate::fixture::{LOG_POSITIONS, create, group, on, table, three, with_nonvoting};
use crate::hub::{Hub, Running, change, missing, wait_until, write_until_done};

fn members(node: &Running) -> Members {
    node.node.log().group_status(group(node)).unwrap().members
}

fn leads(node: &Running) -> bool {
    table(node).shards()[0].local().unwrap().is_leader()
}

/// Whether all other members of the group are active, according to the log of `leader`.
fn takes_all_for_alive(leader: &Running) -> bool {
    let status = leader.node.log().group_status(group(leader)).unwrap();
    status.peers.iter().all(|known| known.active)
}

/// Changes the members of the shard that `leader` leads to `wanted` while `leader` and `silent` are cut off from each
/// other but not from `other`. The change must not be made before the cut is over, and rows can be written all the time.
/// Returns whether `silent` was probed: if the log notices the cut first, the probe was not tested.
#[track_caller]
fn check(hub: &Hub, [leader, other, silent]: [&Running; 3], wanted: DesiredShards) -> bool {
    (0..20).for_each(|n| write_until_done(&[leader], n));
    assert_eq!(missing(silent, 20), []);
    wait_until("a leader", || leads(leader));
    let before = members(leader);
    let asked = Arc::new(AtomicBool::new(false));
    let (was_asked, [asker, responder_server]) = (Arc::clone(&asked), [leader, silent].map(Running::server));
    hub.intercept(move |response| {
        if response.kind == Some(LOG_POSITIONS)
            && response.sent_by == asker
            && response.responder == responder_server
        {
            was_asked.store(true, Ordering::Release);
        }
        Some(response.bytes)
    });
    hub.cut_silently(leader.server(), silent.server());
    change(other, table(other).config.id, wanted).unwrap();
    wait_until("a probe", || {
        asked.load(Ordering::Acquire) || !takes_all_for_alive(leader) || members(leader) != before
    });
    let was_asked = asked.load(Ordering::Acquire);
    assert_eq!(members(leader), before, "half of the voters after the change would not respond");
    (20..40).for_each(|n| write_until_done(&[leader], n));
    // The log notices the cut later than the probe.
    wait_until("an inactive member", || !takes_all_for_alive(leader));
    assert_eq!(members(leader), before, "changed although no response arrived");
    hub.heal();
    wait_until("the wanted members", || members(leader).voters.len() == 2 && members(leader) != before);
    (40..60).for_each(|n| write_until_done(&[leader], n));
    assert_eq!(missing(silent, 60), []);
    was_asked
}

/// Repeats `round` until a member was probed in it.
#[track_caller]
fn until_asked(round: impl Fn() -> bool) {
    assert!((0..5).any(|_| round()), "the log noticed each cut before the probe");
}

#[test]
fn a_voter_that_a_partition_would_need_is_not_removed() {
    until_asked(|| {
        let hub = Arc::new(Hub::default());
        let (_machines, [a, b, c]) = three(&hub);
        create(&a, on(&[&[&a, &b, &c]]));
        a.wait_ready("t");
        check(&hub, [&a, &b, &c], on(&[&[&a, &c]]))
    });
}

#[test]
fn a_silent_learner_is_not_promoted() {
    until_asked(|| {
        let hub = Arc::new(Hub::default());
        let (_machines, [a, b, c]) = three(&hub);
        create(&a, with_nonvoting(&a, &c));
        a.wait_ready("t");
        wait_until("the learner", || members(&a).learners.len() == 1);
        wait_until("the table on b", || b.node.catalog().table("test", "t").is_some());
        check(&hub, [&a, &b, &c], on(&[&[&a, &c]]))
    });
}

#[test]
fn each_server_is_probed_once_for_all_shards_whose_voters_change() {
    const SHARDS: usize = 12;
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c][..]; SHARDS]));
    a.wait_ready("t");
    wait_until("the leaders", || table(&a).shards().iter().all(|shard| shard.local().unwrap().is_leader()));
    (0..40).for_each(|n| write_until_done(&[&a], n));
    let asked = Arc::new(AtomicU32::new(0));
    let (count, [asker, responder_server]) = (Arc::clone(&asked), [&a, &b].map(Running::server));
    hub.intercept(move |response| {
        let is_counted = response.kind == Some(LOG_POSITIONS)
            && response.sent_by == asker
            && response.responder == responder_server;
        count.fetch_add(is_counted.into(), Ordering::AcqRel);
        Some(response.bytes)
    });
    change(&b, table(&b).config.id, on(&[&[&a, &b][..]; SHARDS])).unwrap();
    let voters = |group| a.node.log().group_status(group).unwrap().members.voters.len();
    wait_until("the end of the third", || table(&a).shards().iter().all(|shard| voters(shard.group()) == 2));
    // More than one, because some shards may be ready later than the first, or the changes may outlast a probe.
    let asked = asked.load(Ordering::Acquire);
    assert!((1..=SHARDS as u32 / 3).contains(&asked), "{asked} probes");
}
