//! Machines without a cluster make one together, or do not.

use super::*;

fn allow_bootstrap() -> Command {
    Command::AllowBootstrap(BootstrapPermission { is_allowed: true, own_addresses: BTreeMap::new() })
}

/// Machines without a cluster that all have the same `--join`, after running for `time`.
fn run_identical<const N: usize>(
    join: &[&str],
    load_balancer: (&'static str, Backend),
    time: Duration,
) -> TestNetwork<N> {
    let mut network = network_of(std::array::from_fn(|i| machine(i as u128 + 1, None, join)));
    network.load_balancer = Some(load_balancer);
    network.machines.iter_mut().for_each(|machine| machine.handle_command(allow_bootstrap()));
    network.run(time);
    network
}

/// Longer than all validity and promise times of bootstrap.
const LONG_RUN_TIME: Duration = Duration::from_secs(120);

#[test]
fn two_servers_that_each_find_themselves_behind_one_address_make_no_clusters() {
    let network: TestNetwork<2> = run_identical(&["vip:1"], ("vip:1", |from, _| from), LONG_RUN_TIME);
    assert_eq!(network.bootstrapped, 0, "{:?}", network.lines);
    for (i, lines) in network.lines.iter().enumerate() {
        let hint = format!(
            "--join vip:1 is certain to be one server: \"n{}\" has answered, and that is neither",
            i + 1
        );
        assert_eq!(lines.iter().filter(|line| line.contains(&hint)).count(), 1, "{lines:?}");
    }
}

#[test]
fn servers_that_find_each_other_in_pairs_behind_one_address_make_no_clusters() {
    let network: TestNetwork<4> = run_identical(&["vip:1"], ("vip:1", |from, _| from ^ 1), LONG_RUN_TIME);
    assert_eq!(network.bootstrapped, 0, "{:?}", network.lines);
    // The machines confirm the address, as for a DNS name whose addresses are used in turn.
    let mut network: TestNetwork<4> =
        network_of(std::array::from_fn(|i| machine(i as u128 + 1, None, &["vip:1"])));
    network.load_balancer = Some(("vip:1", |from, _| from ^ 1));
    for machine in &mut network.machines {
        machine.identity.local.canonical = vec!["vip:1".to_owned()];
        machine.handle_command(allow_bootstrap());
    }
    network.run(LONG_RUN_TIME);
    assert_eq!(network.bootstrapped, 0, "{:?}", network.lines);
    let hint = "--join vip:1 is the same server for each of them, which it is not now";
    assert!(
        network.lines.iter().all(|lines| lines.iter().any(|line| line.contains(hint))),
        "{:?}",
        network.lines
    );
}

#[test]
fn an_address_where_different_servers_answer_counts_as_unanswered() {
    let mut network: TestNetwork<3> =
        network_of(std::array::from_fn(|i| machine(i as u128 + 1, None, &["vip:1", "n1:1"])));
    network.load_balancer = Some(("vip:1", |_, dial| dial as usize % 3));
    for machine in &mut network.machines {
        machine.identity.local.canonical = vec!["vip:1".to_owned()];
        machine.handle_command(allow_bootstrap());
    }
    network.run(LONG_RUN_TIME);
    assert_eq!(network.bootstrapped, 0, "{:?}", network.lines);
    let hint = "--join vip:1 is one server, and different ones have answered there";
    assert!(
        network.lines.iter().all(|lines| lines.iter().any(|line| line.contains(hint))),
        "{:?}",
        network.lines
    );
    // Once there is a cluster, they find it at that address.
    network.machines[0].identity.local.cluster = Some(Uuid::from_u128(9));
    network.run(LONG_RUN_TIME);
    assert!(
        network.machines.iter().all(|machine| machine.identity.local.cluster == Some(Uuid::from_u128(9)))
    );
}

#[test]
fn a_server_may_be_named_by_its_canonical_address() {
    let mut network = pair(machine(1, None, &["one.example:1"]), machine(2, None, &["n1:1"]));
    network.machines[1].bootstrap = Bootstrap::new(&["two.example:1".to_owned()]);
    network.machines[1].dialer.join("two.example:1", Nanos::default());
    network.machines[0].identity.local.canonical = vec!["two.example:1".to_owned()];
    network.machines[1].identity.local.canonical = vec!["one.example:1".to_owned()];
    network.machines.iter_mut().for_each(|machine| machine.handle_command(allow_bootstrap()));
    network.run(RUN_TIME);
    assert_eq!(network.bootstrapped, 1, "{:?}", network.lines);
}

#[test]
fn an_address_that_is_known_to_be_the_server_itself_need_not_be_reached() {
    let mut network = pair(machine(1, None, &["own:1", "n2:1"]), machine(2, None, &["n1:1"]));
    network.closed_address = Some("own:1");
    let own = BTreeMap::from([("own:1".to_owned(), "127.0.1.1:1".to_owned())]);
    network.machines[0].handle_command(Command::AllowBootstrap(BootstrapPermission {
        is_allowed: true,
        own_addresses: own,
    }));
    network.machines[1].handle_command(allow_bootstrap());
    network.run(RUN_TIME);
    assert_eq!(network.bootstrapped, 1, "{:?}", network.lines);
}

#[test]
fn no_warnings_are_logged_while_servers_bootstrap() {
    let join = ["n1:1", "n2:1", "n3:1"];
    let mut network: TestNetwork<3> =
        network_of(std::array::from_fn(|i| machine(i as u128 + 1, None, &join)));
    network.machines.iter_mut().for_each(|machine| machine.handle_command(allow_bootstrap()));
    network.run(RUN_TIME);
    assert_eq!(network.bootstrapped, 1);
    assert!(network.connected.iter().all(|connected| connected.len() == 2));
    let is_warning = |line: &&String| line.contains("Cannot link") || line.contains("Refused");
    let warnings: Vec<_> = network.lines.iter().flatten().filter(is_warning).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn a_member_logs_a_warning_about_a_server_that_does_not_find_the_cluster() {
    let mut network = pair(machine(1, Some(9), &["n2:1"]), machine(2, None, &[]));
    let text = "belongs to no cluster yet and joins only a server it dials";
    let count = |network: &TestNetwork| network.lines[0].iter().filter(|line| line.contains(text)).count();
    network.run(RUN_TIME);
    assert_eq!(count(&network), 0, "too early for a warning: {:?}", network.lines);
    network.run(LONG_RUN_TIME);
    assert_eq!(count(&network), 1, "{:?}", network.lines);
}

/// Two servers without a cluster, with these addresses in `--join`.
fn two_joining_servers(one: &[&str], other: &[&str]) -> TestNetwork {
    let mut network = pair(machine(1, None, one), machine(2, None, other));
    network.machines.iter_mut().for_each(|machine| machine.handle_command(allow_bootstrap()));
    network.run(RUN_TIME);
    network
}

#[test]
fn joining_servers_that_name_each_other_make_one_cluster() {
    for both in [["n1:1", "n2:1"], ["n2:1", "n1:1"]] {
        for (one, other) in [(&both[..], &both[..]), (&["n2:1"], &["n1:1"]), (&both[..], &["n1:1"])] {
            let network = two_joining_servers(one, other);
            assert_eq!(network.bootstrapped, 1, "{:?}", network.lines);
            let clusters = network.machines.each_ref().map(|machine| machine.identity.local.cluster);
            assert!(clusters[0].is_some() && clusters[0] == clusters[1], "{clusters:?}");
            assert_eq!(
                (network.connected[0].len(), network.connected[1].len()),
                (1, 1),
                "{:?}",
                network.lines
            );
            assert!(
                network.lines[0].iter().any(|line| line.ends_with("to be joined by \"n2\"")),
                "{:?}",
                network.lines
            );
        }
    }
}

#[test]
fn no_joining_server_makes_a_cluster_alone() {
    let network = two_joining_servers(&["n1:1"], &["n1:1"]);
    assert_eq!(network.bootstrapped, 0);
    let hint = "--join names only this one itself";
    assert!(network.lines[0].iter().any(|line| line.contains(hint)), "{:?}", network.lines);
    assert!(
        network.lines[1].iter().any(|line| line.contains("name others or none: \"n1\"")),
        "{:?}",
        network.lines
    );
}

#[test]
fn joining_servers_wait_for_unreachable_ones_and_log_it_once() {
    // The third address does not answer.
    let mut network = pair(machine(1, None, &["n2:1", "n3:1"]), machine(2, None, &["n1:1", "n3:1"]));
    network.closed_address = Some("n3:1");
    network.machines.iter_mut().for_each(|machine| machine.handle_command(allow_bootstrap()));
    network.run(RUN_TIME);
    assert_eq!(network.bootstrapped, 0);
    network.assert_both_log(
        "every server of --join has answered; missing: n3:1 (if that is this server itself, have it listen there with --bind",
    );
    let lines: Vec<usize> = network.lines.iter().map(Vec::len).collect();
    assert_eq!(lines, [2, 2], "this line, and one about the failed dial of n3: {:?}", network.lines);
}

#[test]
fn joining_servers_that_expect_different_servers_make_no_cluster() {
    // The server at the third address may belong to a cluster that the first server does not know.
    let mut network = pair(machine(1, None, &["n2:1"]), machine(2, None, &["n1:1", "n3:1"]));
    network.closed_address = Some("n3:1");
    network.machines.iter_mut().for_each(|machine| machine.handle_command(allow_bootstrap()));
    network.run(RUN_TIME);
    assert_eq!(network.bootstrapped, 0);
    assert!(
        network.lines[0].iter().any(|line| line.contains("name others or none: \"n2\"")),
        "{:?}",
        network.lines
    );
}

#[test]
fn a_server_that_has_announced_another_founder_makes_no_cluster_soon_after() {
    let mut network = pair(machine(2, None, &["n3:1"]), machine(3, None, &["n2:1"]));
    network.machines.iter_mut().for_each(|machine| machine.handle_command(allow_bootstrap()));
    network.machines[0].bootstrap.expected = Some([1, 2].map(|n| ServerId(Uuid::from_u128(n))).into());
    let Machine { bootstrap, identity, schedule, .. } = &mut network.machines[0];
    let announced = bootstrap.announce(identity, schedule.now());
    assert_eq!(announced.map(|announced| announced.expects.len()), Some(2));
    network.run(RUN_TIME);
    assert_eq!(network.bootstrapped, 0, "the announcement is binding for 30 seconds");
    network.run(RUN_TIME);
    assert_eq!(network.bootstrapped, 1);
}
