//! The replicas of a shard without a quorum cannot be changed.

use std::sync::Arc;

use rekindle_cluster::{AdminError, RepairMode, RepairScope};

use crate::fixture::{create, on, table, three, with_nonvoting};
use crate::hub::{Hub, change, missing, replicated, stored, wait_until, write_until_done};

#[test]
fn the_replicas_of_a_shard_without_a_quorum_are_not_changed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b], n));
    let (id, before) = (table(&a).config.id, table(&a).config.clone());
    b.kill();
    // The leader may not have noticed yet.
    let divided = on(&[&[&a], &[&c]]);
    for (node, wanted) in [(&a, replicated(1, 1)), (&c, on(&[&[&a]])), (&c, on(&[&[&a, &c]])), (&a, divided)]
    {
        let planned = node.node.resharder().plan_places(id, &wanted, &|| true).unwrap_err();
        for refused in [planned, change(node, id, wanted).unwrap_err()] {
            assert!(matches!(&refused, AdminError::NoQuorum { servers } if servers == "`b`"), "{refused}");
        }
        assert_eq!(table(node).config, before);
    }
    wait_until("the repair", || {
        a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    change(&c, id, on(&[&[&a, &c]])).unwrap();
    (20..30).for_each(|n| write_until_done(&[&a, &c], n));
    assert_eq!(missing(&c, 30), []);
}

#[test]
fn a_nonvoting_replica_with_all_rows_stays_while_the_only_voter_is_down() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, with_nonvoting(&b, &c));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&b], n));
    wait_until("the rows on c", || stored(&c).len() == 20);
    let (id, before) = (table(&a).config.id, table(&a).config.clone());
    b.kill();
    let refused = change(&a, id, replicated(1, 1)).unwrap_err();
    assert!(matches!(&refused, AdminError::NoQuorum { servers } if servers == "`b`"), "{refused}");
    assert_eq!(table(&a).config, before);
    wait_until("the repair", || {
        a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    (20..30).for_each(|n| write_until_done(&[&c], n));
    assert_eq!(missing(&c, 30), []);
}

#[test]
fn shards_that_a_change_does_not_affect_may_lack_their_quorum() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b], &[&a]]));
    a.wait_ready("t");
    let id = table(&a).config.id;
    let present = on(&[&[&a, &b], &[&a]]);
    let other = on(&[&[&a, &b], &[&a, &c]]);
    b.kill();
    assert_eq!(a.node.resharder().plan_places(id, &present, &|| true).unwrap().len(), 2);
    change(&a, id, present).unwrap();
    assert_eq!(a.node.resharder().plan_places(id, &other, &|| true).unwrap()[1].replicas.len(), 2);
    let after = change(&a, id, other).unwrap();
    assert_eq!(after.shards[1].replicas.len(), 2);
}
