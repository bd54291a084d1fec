//! New replicas on servers whose earlier replicas of the same shards are still being removed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rekindle_cluster::AdminError;

use crate::fixture::{create, on, table, three};
use crate::hub::{Hub, change, missing, replicated, write_until_done};

#[test]
fn new_replicas_wait_until_the_old_ones_on_the_same_server_are_removed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, replicated(1, 3));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    let id = table(&a).config.id;
    for node in [&a, &b, &c] {
        change(node, id, replicated(1, 1)).unwrap();
        change(node, id, replicated(1, 3)).unwrap();
        assert_eq!(table(node).config.shards[0].replicas.len(), 3);
        node.wait_ready("t");
    }
    for node in [&a, &b, &c] {
        assert_eq!(missing(node, 20), []);
    }
}

#[test]
fn the_wait_for_a_replica_that_cannot_be_removed_is_short_and_the_error_names_it() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, _c]) = three(&hub);
    create(&a, on(&[&[&a, &b]]));
    a.wait_ready("t");
    let (id, group) = (table(&a).config.id, table(&a).shards()[0].group());
    let both = on(&[&[&a, &b]]);
    // Both servers are connected, but receive no messages of the group.
    [&a, &b].into_iter().for_each(|node| hub.drop_messages(node.server(), group));
    change(&a, id, on(&[&[&a]])).unwrap();
    let begin = Instant::now();
    let refused = change(&a, id, both).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    let text = refused.to_string();
    assert!(matches!(refused, AdminError::StillBeingRemoved { .. }) && text.contains("`b`"), "{text}");
}
