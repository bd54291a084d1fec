//! Members change while nodes fall apart and nobody has noticed yet: the half that has a majority keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use log::Members;
use rekindle_cluster::ShardsWanted;

use crate::fixture::{ENDS, create, group, on, table, three, with_nonvoting};
use crate::hub::{Hub, Running, change, missing, wait_until, write_until_done};

fn members(node: &Running) -> Members {
    node.node.log().group_status(group(node)).unwrap().members
}

fn leads(node: &Running) -> bool {
    table(node).shards()[0].local().unwrap().is_leader()
}

/// Whether the log of `leader` takes all others of the group for alive.
fn takes_all_for_alive(leader: &Running) -> bool {
    let status = leader.node.log().group_status(group(leader)).unwrap();
    status.peers.iter().all(|known| known.active)
}

/// Gives the shard, which `leader` leads, the members `wanted` while `leader` and `silent` do not hear each other, though
/// `other` hears both: nothing comes of that before they do, and rows are written all the time. Whether `silent` was
/// asked for a sign of life: the log may notice the cut first, which says nothing of the question.
#[track_caller]
fn check(hub: &Hub, [leader, other, silent]: [&Running; 3], wanted: ShardsWanted) -> bool {
    (0..20).for_each(|n| write_until_done(&[leader], n));
    assert_eq!(missing(silent, 20), []);
    wait_until("a leader", || leads(leader));
    let before = members(leader);
    let asked = Arc::new(AtomicBool::new(false));
    let (was_asked, [asker, answerer]) = (Arc::clone(&asked), [leader, silent].map(Running::server));
    hub.meddle(move |answer| {
        if answer.kind == Some(ENDS) && answer.asked_by == asker && answer.answered_by == answerer {
            was_asked.store(true, Ordering::Release);
        }
        Some(answer.bytes)
    });
    hub.cut_unnoticed(leader.server(), silent.server());
    change(other, table(other).config.id, wanted).unwrap();
    wait_until("a look at who answers", || {
        asked.load(Ordering::Acquire) || !takes_all_for_alive(leader) || members(leader) != before
    });
    let was_asked = asked.load(Ordering::Acquire);
    assert_eq!(members(leader), before, "half of those who vote now do not answer");
    (20..40).for_each(|n| write_until_done(&[leader], n));
    // The log takes longer than the look.
    wait_until("the log's notice", || !takes_all_for_alive(leader));
    assert_eq!(members(leader), before, "nobody had answered");
    hub.mend();
    wait_until("the members of after", || members(leader).voters.len() == 2 && members(leader) != before);
    (40..60).for_each(|n| write_until_done(&[leader], n));
    assert_eq!(missing(silent, 60), []);
    was_asked
}

/// Has `round` repeated until it asked for a sign of life.
#[track_caller]
fn until_asked(round: impl Fn() -> bool) {
    assert!((0..5).any(|_| round()), "the log noticed each cut before anybody was asked");
}

#[test]
fn nobody_is_removed_whose_vote_the_half_needs() {
    until_asked(|| {
        let hub = Arc::new(Hub::default());
        let (_machines, [a, b, c]) = three(&hub);
        create(&a, on(&[&[&a, &b, &c]]));
        a.wait_ready("t");
        check(&hub, [&a, &b, &c], on(&[&[&a, &c]]))
    });
}

#[test]
fn nobody_who_is_silent_gets_a_vote() {
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
fn each_server_is_asked_once_about_all_shards_whose_votes_change() {
    const SHARDS: usize = 12;
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c][..]; SHARDS]));
    a.wait_ready("t");
    wait_until("the leaders", || table(&a).shards().iter().all(|shard| shard.local().unwrap().is_leader()));
    (0..40).for_each(|n| write_until_done(&[&a], n));
    let asked = Arc::new(AtomicU32::new(0));
    let (count, [asker, answerer]) = (Arc::clone(&asked), [&a, &b].map(Running::server));
    hub.meddle(move |answer| {
        let is_counted =
            answer.kind == Some(ENDS) && answer.asked_by == asker && answer.answered_by == answerer;
        count.fetch_add(is_counted.into(), Ordering::AcqRel);
        Some(answer.bytes)
    });
    change(&b, table(&b).config.id, on(&[&[&a, &b][..]; SHARDS])).unwrap();
    let voters = |group| a.node.log().group_status(group).unwrap().members.voters.len();
    wait_until("the end of the third", || table(&a).shards().iter().all(|shard| voters(shard.group()) == 2));
    // Some are perhaps not ready when the first are, or it took long.
    let asked = asked.load(Ordering::Acquire);
    assert!((1..=SHARDS as u32 / 3).contains(&asked), "{asked} questions");
}
