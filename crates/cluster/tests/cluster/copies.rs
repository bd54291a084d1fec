//! Copies of rows that either side interrupts continue with the rows that have arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rekindle_cluster::{ServerId, TableChange, TableOptions};

use crate::fixture::{COPY_BEGIN, on, three};
use crate::hub::{
    Hub, Machine, Running, missing, stored, wait_until, write_long_until_done, write_until_done,
};

const ROWS: u32 = 60;
const ROW_BYTES: usize = 100_000;
const ALL_BYTES: u64 = ROWS as u64 * ROW_BYTES as u64;

/// Three nodes with a table on the first. The copy to the second is interrupted after about half of the rows.
fn halfway(hub: &Arc<Hub>) -> ([Machine; 3], [Running; 3]) {
    let (machines, [a, b, c]) = three(hub);
    let options = TableOptions { shards: on(&[&[&a]]), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    (0..ROWS).for_each(|n| write_long_until_done(&[&a], n, ROW_BYTES));
    hub.limit_responses(b.server(), ALL_BYTES / 2);
    let change = TableChange { shards: Some(on(&[&[&a, &b]])), ..TableChange::default() };
    a.node.resharder().change_table(table, &change).unwrap();
    wait_until("the interruption", || hub.response_bytes(b.server()).1);
    (machines, [a, b, c])
}

/// The progress of the copy to a node, as its jobs show it.
fn progress(node: &Running) -> Option<(Option<ServerId>, u64, u64)> {
    let copies = node.node.copies().under_way();
    let table = node.node.catalog().table("test", "t").unwrap().shards()[0].group();
    let copy = copies.into_iter().find(|(group, _)| *group == table)?.1;
    Some((copy.source, copy.rows, copy.rows_total))
}

/// The copy ends with the rows of `a`, after few more bytes than were missing.
fn goes_on(hub: &Hub, [a, b, c]: &[Running; 3]) {
    write_until_done(&[a, b, c], 0);
    write_long_until_done(&[a, b, c], ROWS, 1000);
    b.wait_ready("t");
    assert_eq!(missing(b, ROWS + 1), []);
    wait_until("the same rows", || stored(a) == stored(b));
    let (bytes, _) = hub.response_bytes(b.server());
    assert!(bytes < ALL_BYTES * 3 / 4, "{bytes} of {ALL_BYTES} bytes, half of which were there");
}

#[test]
fn a_copy_continues_when_its_receiver_restarts() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = halfway(&hub);
    let server = b.server();
    b.kill();
    hub.limit_responses(server, u64::MAX);
    let b = machines[1].start(&hub, None);
    goes_on(&hub, &[a, b, c]);
}

#[test]
fn a_copy_continues_when_its_source_restarts() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = halfway(&hub);
    a.kill();
    hub.limit_responses(b.server(), u64::MAX);
    let a = machines[0].start(&hub, None);
    goes_on(&hub, &[a, b, c]);
}

#[test]
fn the_progress_of_a_copy_is_kept_when_it_is_offered_again() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = halfway(&hub);
    let (source, rows, total) = progress(&b).unwrap();
    assert_eq!((source, total), (Some(a.server()), u64::from(ROWS)));
    assert!(rows > 10 && rows < 50, "{rows} rows");
    // A leader offers the copy every two seconds while a replica needs its rows.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while std::time::Instant::now() < until {
        let (source, rows_now, _) = progress(&b).unwrap();
        assert_eq!((source, rows_now), (Some(a.server()), rows));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    hub.limit_responses(b.server(), u64::MAX);
    let nodes = [a, b, c];
    goes_on(&hub, &nodes);
    wait_until("the end of the job", || progress(&nodes[1]).is_none());
}

#[test]
fn a_copy_with_another_number_of_rows_than_its_source_has_begins_again() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: on(&[&[&a]]), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    let group = a.node.catalog().table("test", "t").unwrap().shards()[0].group();
    // More rows than a leader sends from its log.
    (0..ROWS).for_each(|n| write_long_until_done(&[&a, &c], n, ROW_BYTES));
    let begun = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&begun);
    hub.intercept(move |response| {
        let begins = response.kind == Some(COPY_BEGIN) && response.group == Some(group);
        let mut bytes = response.bytes.to_vec();
        if begins && times.fetch_add(1, Ordering::AcqRel) == 0 {
            // The number of rows follows the number of the copy.
            bytes[8] += 1;
        }
        Some(bytes.into())
    });
    let change = TableChange { shards: Some(on(&[&[&a, &b]])), ..TableChange::default() };
    a.node.resharder().change_table(table, &change).unwrap();
    wait_until("the replica", || {
        let catalog = b.node.catalog();
        catalog.table("test", "t").is_some_and(|table| table.shards()[0].local().is_some())
    });
    b.wait_ready("t");
    assert_eq!(begun.load(Ordering::Acquire), 2, "once with one row too many");
    assert_eq!(missing(&b, ROWS), []);
    assert!(stored(&a) == stored(&b));
}

#[test]
fn the_leader_known_to_the_log_outweighs_a_lookup_that_ends_later() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: on(&[&[&a]]), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    wait_until("the table", || c.node.catalog().table("test", "t").is_some());
    // A lookup that begins now has this handle, which has no local replica.
    let handle = c.node.catalog().table("test", "t").unwrap().shards()[0].clone();
    assert!(handle.local().is_none());
    let all = on(&[&[&a, &b, &c]]);
    a.node
        .resharder()
        .change_table(table, &TableChange { shards: Some(all), ..TableChange::default() })
        .unwrap();
    a.wait_ready("t");
    wait_until("the leader", || handle.known_leader().leader() == Some(a.server()));
    hub.limit_responses(c.server(), 0);
    c.node.leaders().find_leaders(&[&handle]);
    assert_eq!(handle.known_leader().leader(), Some(a.server()), "no server responded, but the log knows");
}
