//! What happens between the first seal of a division and its new shards: replicas are moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rekindle_cluster::{AdminError, ShardsWanted, TableChange, places_of};

use crate::division::{create, on, settled, table};
use crate::hub::{Hub, Running, SET_MARK, three, wait_until, write_until_done};

fn shards(wanted: ShardsWanted) -> TableChange {
    TableChange { shards: Some(wanted), ..TableChange::default() }
}

/// Waits until every node has the table, and it is ready.
fn everywhere(nodes: &[&Running]) {
    for node in nodes {
        wait_until("the table", || node.node.catalog().table("test", "t").is_some());
        node.wait_ready("t");
    }
}

#[test]
fn replicas_that_are_moved_after_the_seals_stay_where_they_were_moved() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&b, &c], &[&c, &b]]));
    everywhere(&[&a, &b, &c]);
    (0..60).for_each(|n| write_until_done(&[&b, &c], n));
    let id = table(&a).config.id;
    let (elsewhere, other, is_moved) =
        (shards(on(&[&[&c], &[&b]])), Arc::clone(&c.node), AtomicBool::new(false));
    hub.meddle(move |answer| {
        if answer.kind == Some(SET_MARK) && !is_moved.swap(true, Ordering::AcqRel) {
            other.change_table(id, &elsewhere).unwrap();
        }
        Some(answer.bytes)
    });
    let done = a.node.rebalance(id, &|| true);
    assert!(matches!(done, Err(AdminError::NotTogether)), "{done:?}");
    let places = |node: &Running| places_of(&table(node).config.shards);
    let moved = match on(&[&[&c], &[&b]]) {
        ShardsWanted::Named(moved) => moved,
        ShardsWanted::Placed(_) => unreachable!("they are named"),
    };
    assert_eq!(places(&a), moved);
    write_until_done(&[&b, &c], 60);
    wait_until("they have moved", || {
        let shards = &table(&a).config.shards;
        places(&a) == moved && shards.iter().all(|shard| shard.leaving.is_empty())
    });
    // And so they stay when the shards are made equal.
    wait_until("a division", || matches!(a.node.rebalance(id, &|| true), Ok(true)));
    settled(&[&a]);
    assert_eq!(places(&a), moved);
}
