//! What a server whose log does not get on gives up, what it keeps, and when it has it again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use io::Files;
use io::sim::{Fault, Hang, SimFiles};
use log::{Durability, GroupId, Role, StallCause, Term};
use rekindle_cluster::{Route, RpcClient, ShardHandle, TableOptions};
use shard::{Decision, WriteTicket};

use crate::fixture::{ENDS, create, on};
use crate::hub::{Hub, Line, Machine, Passing, Running, missing, row, wait_until, write_until_done};
use crate::stalled::{Disk, look, three_and_a_disk};

fn handle(node: &Running, table: &str) -> ShardHandle {
    node.node.catalog().table("test", table).unwrap().shards()[0].clone()
}

fn leads(node: &Running, table: &str) -> bool {
    handle(node, table).local().is_some_and(|near| near.is_leader())
}

/// A row on its way into a table that is led from here.
fn write_in(node: &Running, table: &str, n: u32) -> WriteTicket {
    let (key, object) = row(n);
    let near = handle(node, table).local().unwrap().clone();
    near.write_rows(vec![(key, Decision::Put(object))], Durability::Hard)
}

fn term(node: &Running, table: &str) -> Term {
    match node.node.log().group_status(handle(node, table).group()).unwrap().role {
        Role::Leader { term } | Role::Follower { term, .. } => term,
    }
}

/// A table in one shard on those, led by the first of them.
fn table_on(nodes: &[&Running], table: &str) {
    let options = TableOptions { shards: on(&[nodes]), ..TableOptions::default() };
    nodes[0].node.schema().create_table("test", table, options).unwrap();
    nodes[0].wait_ready(table);
    wait_until("the first leads", || leads(nodes[0], table));
}

/// Looks for a while at what must stay so.
#[track_caller]
fn for_a_while(nodes: &[&Running], long: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < long {
        look(nodes);
        assert!(is_so(), "after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_office_is_not_taken_back_while_the_log_has_heard_nothing() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    let others = [&b, &c];
    wait_until("another leads, and the first knows", || {
        look(&[&a, &b, &c]);
        !leads(&a, "t") && others.iter().any(|node| leads(node, "t"))
    });
    write_until_done(&others, 1);
    // That turn ends, and the next one hangs.
    let first = a.node.log().stall().unwrap();
    files.let_appends_pass(1);
    wait_until("the next turn", || a.node.log().stall().is_some_and(|stall| stall != first));
    for_a_while(&[&a, &b, &c], Duration::from_secs(3), || !leads(&a, "t"));
    files.hang(None);
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
    wait_until("the first hears who leads", || {
        look(&[&a, &b, &c]);
        a.node.health().own_stall().is_none() && matches!(handle(&a, "t").leader(), Some(Route::Remote(_)))
            || leads(&a, "t")
    });
    for node in [&a, &b, &c] {
        assert_eq!(missing(node, 2), []);
    }
}

#[test]
fn who_was_not_replaced_leads_again_in_its_term_once_a_majority_says_so() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    let (group, before) = (handle(&a, "t").group(), term(&a, "t"));
    // They have nobody to elect another with.
    [&b, &c].iter().for_each(|node| hub.deafen(node.server(), group));
    files.fill(true);
    let late = write_in(&a, "t", 0);
    wait_until("it gives up", || {
        look(&[&a, &b, &c]);
        !leads(&a, "t")
    });
    files.fill(false);
    hub.deafen(a.server(), group);
    wait_until("its log gets on", || {
        look(&[&a, &b, &c]);
        a.node.health().own_stall().is_none()
    });
    look(&[&a, &b, &c]);
    assert!(!leads(&a, "t"), "nobody has confirmed it");
    hub.let_all_hear();
    wait_until("somebody leads", || {
        look(&[&a, &b, &c]);
        [&a, &b, &c].iter().any(|node| leads(node, "t"))
    });
    assert!(term(&a, "t") > before || leads(&a, "t"));
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
}

#[test]
fn who_was_replaced_gives_up_though_whoever_replaced_it_is_out_of_reach_and_leads_no_more() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    // So that it asks nobody before all is as it is to be, only the others look.
    for node in [&b, &c] {
        let end = Arc::clone(&hub.ends.read()[&node.server()]);
        end.log.peers_unreachable(end.wiring.transport.replicas_on(a.server()));
    }
    wait_until("another leads", || {
        look(&[&b, &c]);
        leads(&b, "t") || leads(&c, "t")
    });
    let (elected, other) = if leads(&b, "t") { (&b, &c) } else { (&c, &b) };
    [&a, other].iter().for_each(|node| hub.cut(elected.server(), node.server()));
    wait_until("nobody else leads any more", || {
        look(&[&b, &c]);
        !leads(elected, "t") && !leads(other, "t") && handle(other, "t").leader().is_none()
    });
    wait_until("it gives up", || {
        look(&[&a, &b, &c]);
        !leads(&a, "t")
    });
    files.hang(None);
    hub.mend();
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
}

/// The kind of question for the newest terms of groups: docs/formats/cluster-request.md.
const TERMS: Option<u8> = Some(21);

#[test]
fn who_cannot_be_replaced_leads_on_as_long_as_a_majority_knows_its_term() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b, &c], "t");
    let group = handle(&a, "t").group();
    [&b, &c].iter().for_each(|node| hub.deafen(node.server(), group));
    hub.cut(a.server(), c.server());
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    wait_until("it is noticed", || {
        look(&[&a, &b, &c]);
        a.node.health().own_stall().is_some()
    });
    for_a_while(&[&a, &b, &c], Duration::from_secs(4), || leads(&a, "t"));
    // As if it had forgotten.
    hub.meddle(|passing: Passing| {
        let is_of_terms = passing.kind == TERMS;
        Some(if is_of_terms { vec![0; passing.bytes.len()].into() } else { passing.bytes })
    });
    wait_until("it gives up", || {
        look(&[&a, &b, &c]);
        !leads(&a, "t")
    });
    files.hang(None);
    hub.mend();
    hub.let_all_hear();
    wait_until("it leads again, or another does", || {
        look(&[&a, &b, &c]);
        [&a, &b, &c].iter().any(|node| leads(node, "t"))
    });
    drop(late.wait());
    write_until_done(&[&a, &b, &c], 0);
}

#[test]
fn a_log_that_has_stopped_gives_up_all_that_others_can_lead_for_good() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    ["t", "idle"].iter().for_each(|table| table_on(&[&a, &b, &c], table));
    files.inject(Fault::Append);
    assert!(write_in(&a, "t", 0).wait().is_err());
    wait_until("others lead both", || {
        look(&[&a, &b, &c]);
        ["t", "idle"].iter().all(|table| !leads(&a, table) && [&b, &c].iter().any(|node| leads(node, table)))
    });
    let is_stopped = || a.node.health().own_stall().is_some_and(|stall| stall.cause == StallCause::Stopped);
    for_a_while(&[&a, &b, &c], Duration::from_secs(3), || is_stopped() && !leads(&a, "idle"));
    let there = handle(&a, "idle");
    a.node.leaders().find_leaders(&[&there]);
    assert!(matches!(there.leader(), Some(Route::Remote(_))));
}

/// Three whose disks can be filled, each alone.
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
fn what_nobody_else_can_lead_is_not_given_up() {
    for full in [2, 3] {
        let hub = Arc::new(Hub::default());
        let ([a, b, c], files) = three_disks(&hub);
        for (leader, others, table) in [(&a, [&b, &c], "t"), (&b, [&a, &c], "u"), (&c, [&a, &b], "v")] {
            table_on(&[leader, others[0], others[1]], table);
        }
        let led = [(&a, "t"), (&b, "u"), (&c, "v")];
        files[..full].iter().for_each(|files| files.fill(true));
        let late: Vec<_> = led[..full].iter().map(|(node, table)| write_in(node, table, 0)).collect();
        wait_until("it is noticed", || {
            look(&[&a, &b, &c]);
            led[..full].iter().all(|(node, _)| node.node.health().own_stall().is_some())
        });
        for_a_while(&[&a, &b, &c], Duration::from_secs(3), || {
            led[..full].iter().all(|(node, table)| leads(node, table))
        });
        files.iter().for_each(|files| files.fill(false));
        late.into_iter().for_each(|late| drop(late.wait()));
    }
}

#[test]
fn what_two_hold_is_read_through_either_while_the_disk_of_the_leader_is_full() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    table_on(&[&a, &b], "t");
    files.fill(true);
    let late = write_in(&a, "t", 0);
    wait_until("the other misses its leader", || {
        look(&[&a, &b, &c]);
        handle(&b, "t").leader().is_none()
    });
    wait_until("it is told who leads", || {
        look(&[&a, &b, &c]);
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
    wait_until("it gives up", || {
        look(&[&a, &b, &c]);
        !leads(&a, "t") && [&b, &c].iter().any(|node| leads(node, "t"))
    });
    let begun = Instant::now();
    a.node.schema().create_db("meanwhile").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    wait_until("the others have it", || b.node.catalog().database("meanwhile").is_some());
    // What it shows is old from here on.
    let begun = Instant::now();
    let refused = a.node.schema().create_db("too late").unwrap_err().to_string();
    assert!(refused.contains("because its log makes no progress"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    files.fill(false);
    drop(late.wait());
    wait_until("it has the news", || {
        look(&[&a, &b, &c]);
        a.node.health().own_stall().is_none() && a.node.catalog().database("meanwhile").is_some()
    });
    a.node.schema().create_db("again").unwrap();
}

#[test]
fn questions_for_a_log_that_hangs_are_refused() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    create(&a, on(&[&[&a]]));
    a.wait_ready("t");
    files.hang(Some(Hang::Everything));
    let late = write_in(&a, "t", 0);
    wait_until("it is noticed", || {
        look(&[&a, &b, &c]);
        a.node.health().own_stall().is_some()
    });
    let mut question = BytesMut::from(&[0, 4, ENDS][..]);
    question.put_u32_le(1);
    question.put_u64_le(handle(&a, "t").group().0);
    let question: Bytes = question.freeze();
    let (sender, receiver) = std::sync::mpsc::channel();
    let line = Line { hub: hub.clone(), own: b.server() };
    line.call(
        a.server(),
        question,
        Duration::from_secs(60),
        Box::new(move |answer| drop(sender.send(answer))),
    );
    let answer = receiver.recv_timeout(Duration::from_secs(2)).expect("it waits for the log");
    assert!(answer.is_err(), "{answer:?}");
    files.hang(None);
    late.wait().unwrap();
}
