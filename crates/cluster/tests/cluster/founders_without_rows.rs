//! Founders of new shards that have lost the rows of the old shards, and begin without rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use log::GroupId;

use crate::fixture::{create, on, reshard, table, three, wait_until_resharded};
use crate::hub::{Hub, Running, missing, wait_until, write_until_done};
use crate::reshard::rows;

const SHARDS: usize = 20;
const ROWS: u32 = 60;
/// The requests that flush the engine: for the log position of a group, and for the groups that a server has with their
/// rows.
const FLUSHING: [u8; 2] = [7, 16];

#[test]
fn a_founder_without_rows_asks_each_server_once_about_all_shards_and_waits_for_no_silent_one() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c]]));
    let old = table(&a).shards()[0].group();
    (0..ROWS).for_each(|n| write_until_done(&[&a, &b, &c], n));
    [&a, &b, &c].iter().for_each(|node| assert_eq!(missing(node, ROWS), []));
    let (asked, responded, speaks) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (asked_a, responses_of_a, a_speaks) =
        (Arc::clone(&asked), Arc::clone(&responded), Arc::clone(&speaks));
    let (first, last) = (a.server(), c.server());
    hub.intercept(move |response| {
        if response.sent_by != last || !response.kind.is_some_and(|kind| FLUSHING.contains(&kind)) {
            return Some(response.bytes);
        }
        if response.responder != first {
            return None;
        }
        asked_a.fetch_add(1, Ordering::AcqRel);
        a_speaks.load(Ordering::Acquire).then(|| {
            responses_of_a.fetch_add(1, Ordering::AcqRel);
            response.bytes
        })
    });
    // Its rows are void now. It receives no copy before the shard is sealed, nor after it.
    hub.limit_responses(c.server(), 0);
    c.node.log().begin_restore(old).unwrap();
    c.node.replicas().mark_recovering(old);
    let place: &[&Running] = &[&a, &b, &c];
    let config = reshard(&a, on(&[place; SHARDS]));
    assert!(config.shards.iter().all(|shard| shard.founders.len() == 3), "it founds them: {config:?}");
    hub.limit_responses(c.server(), u64::MAX);
    let new_groups: Vec<GroupId> = config.shards.iter().map(|shard| shard.group).collect();
    let is_open = |node: &Running, group: &GroupId| node.node.log().group_status(*group).is_ok();
    wait_until("the new shards", || new_groups.iter().all(|group| is_open(&a, group)));
    wait_until("requests without a response", || asked.load(Ordering::Acquire) > 2);
    assert!(
        !new_groups.iter().any(|group| is_open(&c, group)),
        "no server has confirmed that it has the rows"
    );
    speaks.store(true, Ordering::Release);
    wait_until_resharded(&[&a, &b, &c]);
    assert_eq!(responded.load(Ordering::Acquire), 1, "each request makes {first} flush its engine");
    assert_eq!((missing(&c, ROWS), rows(&c)), (vec![], u64::from(ROWS)));
}
