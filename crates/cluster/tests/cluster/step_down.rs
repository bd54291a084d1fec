//! A server whose log makes no progress: the groups from which it steps down, the groups that it keeps leading, and when
//! it leads again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use io::Files;
use io::sim::{Fault, Hang, SimFiles};
use log::{Durability, GroupId, Role, StallCause, Term};
use rekindle_cluster::{Route, RpcClient, ShardHandle, TableOptions};
use shard::{Decision, WriteTicket};

use crate::disk_stalls::{Disk, check_health, three_and_a_disk};
use crate::fixture::{LOG_POSITIONS, create, on};
use crate::hub::{Hub, HubClient, Intercepted, Machine, Running, missing, row, wait_until, write_until_done};

fn handle(node: &Running, table: &str) -> ShardHandle {
    node.node.catalog().table("test", table).unwrap().shards()[0].clone()
}

fn leads(node: &Running, table: &str) -> bool {
    handle(node, table).local().is_some_and(|local| local.is_leader())
}

/// Begins to write a row into a table that the node leads.
fn write_in(node: &Running, table: &str, n: u32) -> WriteTicket {
    let (key, object) = row(n);
    let local = handle(node, table).local().unwrap().clone();
    local.write_rows(vec![(key, Decision::Put(object))], Durability::Hard)
}

fn term(node: &Running, table: &str) -> Term {
    match node.node.log().group_status(handle(node, table).group()).unwrap().role {
        Role::Leader { term } | Role::Follower { term, .. } => term,
    }
}

/// Creates a table of one shard on these nodes, led by the first of them.
fn table_on(nodes: &[&Running], table: &str) {
    let options = TableOptions { shards: on(&[nodes]), ..TableOptions::default() };
    nodes[0].node.schema().create_table("test", table, options).unwrap();
    nodes[0].wait_ready(table);
    wait_until("the first leads", || leads(nodes[0], table));
}

/// Checks for the duration `long` that a condition holds.
#[track_caller]
fn holds_for(nodes: &[&Running], long: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < long {
        check_health(nodes);
        assert!(is_so(), "after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_leadership_is_not_resumed_while_the_log_has_received_nothing() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    let others = [&b, &c];
    wait_until("another leader, known to the first", || {
        check_health(&[&a, &b, &c]);
        !leads(&a, "t") && others.iter().any(|node| leads(node, "t"))
    });
    write_until_done(&others, 1);
    // That append ends, and the next one hangs.
    let first = a.node.log().stall().unwrap();
    files.let_appends_pass(1);
    wait_until("the next stall", || a.node.log().stall().is_some_and(|stall| stall != first));
    holds_for(&[&a, &b, &c], Duration::from_secs(3), || !leads(&a, "t"));
    files.hang(None);
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
    wait_until("the first knows the leader", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().own_stall().is_none()
            && matches!(handle(&a, "t").leader(), Some(Route::Remote(_)))
            || leads(&a, "t")
    });
    for node in [&a, &b, &c] {
        assert_eq!(missing(node, 2), []);
    }
}

#[test]
fn a_leader_that_was_not_replaced_leads_again_once_a_quorum_confirms_it() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    let (group, before) = (handle(&a, "t").group(), term(&a, "t"));
    // They have no quorum to elect another leader.
    [&b, &c].iter().for_each(|node| hub.drop_messages(node.server(), group));
    files.fill(true);
    let late = write_in(&a, "t", 0);
    wait_until("the step-down", || {
        check_health(&[&a, &b, &c]);
        !leads(&a, "t")
    });
    files.fill(false);
    hub.drop_messages(a.server(), group);
    wait_until("progress of its log", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().own_stall().is_none()
    });
    check_health(&[&a, &b, &c]);
    assert!(!leads(&a, "t"), "no quorum has confirmed it");
    hub.deliver_messages();
    wait_until("a leader", || {
        check_health(&[&a, &b, &c]);
        [&a, &b, &c].iter().any(|node| leads(node, "t"))
    });
    assert!(term(&a, "t") > before || leads(&a, "t"));
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
}

#[test]
fn a_replaced_leader_steps_down_although_its_successor_is_unreachable_and_no_longer_leads() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    // Only the other nodes run their checks, so that the first asks no server before the state is set up.
    for node in [&b, &c] {
        let end = Arc::clone(&hub.endpoints.read()[&node.server()]);
        end.log.peers_unreachable(end.wiring.transport.replicas_on(a.server()));
    }
    wait_until("another leader", || {
        check_health(&[&b, &c]);
        leads(&b, "t") || leads(&c, "t")
    });
    let (elected, other) = if leads(&b, "t") { (&b, &c) } else { (&c, &b) };
    [&a, other].iter().for_each(|node| hub.cut(elected.server(), node.server()));
    wait_until("no other leader", || {
        check_health(&[&b, &c]);
        !leads(elected, "t") && !leads(other, "t") && handle(other, "t").leader().is_none()
    });
    wait_until("the step-down", || {
        check_health(&[&a, &b, &c]);
        !leads(&a, "t")
    });
    files.hang(None);
    hub.heal();
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
}

/// The request for the newest terms of groups: docs/formats/cluster-request.md.
const TERMS: Option<u8> = Some(21);

#[test]
fn a_leader_that_cannot_be_replaced_stays_while_a_quorum_confirms_its_term() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    let group = handle(&a, "t").group();
    [&b, &c].iter().for_each(|node| hub.drop_messages(node.server(), group));
    hub.cut(a.server(), c.server());
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    wait_until("the stall is noticed", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().own_stall().is_some()
    });
    holds_for(&[&a, &b, &c], Duration::from_secs(4), || leads(&a, "t"));
    // The responses say that no terms are known.
    hub.intercept(|intercepted_response: Intercepted| {
        let is_of_terms = intercepted_response.kind == TERMS;
        Some(if is_of_terms {
            vec![0; intercepted_response.bytes.len()].into()
        } else {
            intercepted_response.bytes
        })
    });
    wait_until("the step-down", || {
        check_health(&[&a, &b, &c]);
        !leads(&a, "t")
    });
    files.hang(None);
    hub.heal();
    hub.deliver_messages();
    wait_until("a leader", || {
        check_health(&[&a, &b, &c]);
        [&a, &b, &c].iter().any(|node| leads(node, "t"))
    });
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
}

#[test]
fn a_server_whose_log_has_stopped_steps_down_permanently_where_others_can_lead() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    ["t", "idle"].iter().for_each(|table| table_on(&[&a, &b, &c], table));
    files.inject(Fault::Append);
    assert!(write_in(&a, "t", 0).wait().is_err());
    wait_until("other leaders of both", || {
        check_health(&[&a, &b, &c]);
        ["t", "idle"].iter().all(|table| !leads(&a, table) && [&b, &c].iter().any(|node| leads(node, table)))
    });
    let is_stopped =
        || a.node.stall_monitor().own_stall().is_some_and(|stall| stall.cause == StallCause::Stopped);
    holds_for(&[&a, &b, &c], Duration::from_secs(3), || is_stopped() && !leads(&a, "idle"));
    let there = handle(&a, "idle");
    a.node.leaders().find_leaders(&[&there]);
    assert!(matches!(there.leader(), Some(Route::Remote(_))));
}

/// Three servers whose disks can be filled, each by itself.
fn three_disks(hub: &Arc<Hub>) -> ([Running; 3], [Disk; 3]) {
    let files = [7, 8, 9].map(SimFiles::new);
    files.iter().for_each(|files| files.create_dir_all(Path::new("data")).unwrap());
    let start = |nth: usize, name, into: Option<&Running>| {
        Machine { files: Arc::new(files[nth].clone()), ..Machine::new(name) }.start(hub, into)
    };
    let a = start(0, "a", None);
    let (b, c) = (start(1, "b", Some(&a)), start(2, "c", Some(&a)));
    wait_until("three voters", || a.node.log().group_status(GroupId(0)).unwrap().members.voters.len() == 3);
    ([a, b, c], files.map(Disk))
}

#[test]
fn a_server_does_not_step_down_where_no_other_can_lead() {
    for full in [2, 3] {
        let hub = Arc::new(Hub::default());
        let ([a, b, c], files) = three_disks(&hub);
        for (leader, others, table) in [(&a, [&b, &c], "t"), (&b, [&a, &c], "u"), (&c, [&a, &b], "v")] {
            table_on(&[leader, others[0], others[1]], table);
        }
        let led = [(&a, "t"), (&b, "u"), (&c, "v")];
        files[..full].iter().for_each(|files| files.fill(true));
        let late: Vec<_> = led[..full].iter().map(|(node, table)| write_in(node, table, 0)).collect();
        wait_until("the stall is noticed", || {
            check_health(&[&a, &b, &c]);
            led[..full].iter().all(|(node, _)| node.node.stall_monitor().own_stall().is_some())
        });
        holds_for(&[&a, &b, &c], Duration::from_secs(3), || {
            led[..full].iter().all(|(node, table)| leads(node, table))
        });
        files.iter().for_each(|files| files.fill(false));
        late.into_iter().for_each(|late| drop(late.wait()));
    }
}

#[test]
fn a_shard_of_two_replicas_is_read_through_either_while_the_leaders_disk_is_full() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b], "t");
    files.fill(true);
    let late = write_in(&a, "t", 0);
    wait_until("the loss of the leader", || {
        check_health(&[&a, &b, &c]);
        handle(&b, "t").leader().is_none()
    });
    wait_until("the leader named by others", || {
        check_health(&[&a, &b, &c]);
        let there = handle(&b, "t");
        b.node.leaders().find_leaders(&[&there]);
        matches!(there.leader(), Some(Route::Remote(server)) if server == a.server())
    });
    files.fill(false);
    drop(late.wait());
}

#[test]
fn the_configuration_can_be_changed_through_a_server_whose_disk_is_full() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    files.fill(true);
    let late = write_in(&a, "t", 0);
    wait_until("the step-down", || {
        check_health(&[&a, &b, &c]);
        !leads(&a, "t") && [&b, &c].iter().any(|node| leads(node, "t"))
    });
    let begun = Instant::now();
    a.node.schema().create_db("meanwhile").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    wait_until("the database on the others", || b.node.catalog().database("meanwhile").is_some());
    // The catalog that it shows is old from here on.
    let begun = Instant::now();
    let refused = a.node.schema().create_db("too late").unwrap_err().to_string();
    assert!(refused.contains("because its log makes no progress"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    files.fill(false);
    drop(late.wait());
    wait_until("the latest catalog", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().own_stall().is_none() && a.node.catalog().database("meanwhile").is_some()
    });
    a.node.schema().create_db("again").unwrap();
}

#[test]
fn requests_that_need_a_hanging_log_are_refused() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    create(&a, on(&[&[&a]]));
    a.wait_ready("t");
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    wait_until("the stall is noticed", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().own_stall().is_some()
    });
    let mut request = BytesMut::from(&[0, 4, LOG_POSITIONS][..]);
    request.put_u32_le(1);
    request.put_u64_le(handle(&a, "t").group().0);
    let request: Bytes = request.freeze();
    let (sender, receiver) = std::sync::mpsc::channel();
    let line = HubClient { hub: hub.clone(), own: b.server() };
    line.call(
        a.server(),
        request,
        Duration::from_secs(60),
        Box::new(move |response| drop(sender.send(response))),
    );
    let response = receiver.recv_timeout(Duration::from_secs(2)).expect("the request waits for the log");
    assert!(response.is_err(), "{response:?}");
    files.hang(None);
    late.wait().unwrap();
}
