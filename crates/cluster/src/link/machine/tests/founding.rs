//! How machines that belong to no cluster make one, or do not.

use super::*;

fn may_found() -> Command {
    Command::MayFound(MayFound { is_allowed: true, own: BTreeMap::new() })
}

/// Machines without a cluster that were all told to join these places, and run for `time`.
fn alike<const N: usize>(join: &[&str], front: (&'static str, Behind), time: Duration) -> Bench<N> {
    let mut bench = bench_of(std::array::from_fn(|i| machine(i as u128 + 1, None, join)));
    bench.front = Some(front);
    bench.machines.iter_mut().for_each(|machine| machine.wanted(may_found()));
    bench.run(time);
    bench
}

/// Longer than anything here is remembered.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn two_servers_that_find_themselves_behind_one_address_make_no_clusters() {
    let bench: Bench<2> = alike(&["vip:1"], ("vip:1", |from, _| from), LONG);
    assert_eq!(bench.founded, 0, "{:?}", bench.notes);
    for (i, notes) in bench.notes.iter().enumerate() {
        let hint = format!(
            "--join vip:1 is certain to be one server: \"n{}\" has on_response, and that is neither",
            i + 1
        );
        assert_eq!(notes.iter().filter(|note| note.contains(&hint)).count(), 1, "{notes:?}");
    }
}

#[test]
fn servers_that_find_each_other_in_pairs_behind_one_address_make_no_clusters() {
    let bench: Bench<4> = alike(&["vip:1"], ("vip:1", |from, _| from ^ 1), LONG);
    assert_eq!(bench.founded, 0, "{:?}", bench.notes);
    // The address itself reaches them, as one name with several addresses does that are given in turn.
    let mut bench: Bench<4> = bench_of(std::array::from_fn(|i| machine(i as u128 + 1, None, &["vip:1"])));
    bench.front = Some(("vip:1", |from, _| from ^ 1));
    for machine in &mut bench.machines {
        machine.me.canonical = vec!["vip:1".to_owned()];
        machine.wanted(may_found());
    }
    bench.run(LONG);
    assert_eq!(bench.founded, 0, "{:?}", bench.notes);
    let hint = "--join vip:1 is the same server to each of them, which it is not";
    assert!(
        bench.notes.iter().all(|notes| notes.iter().any(|note| note.contains(hint))),
        "{:?}",
        bench.notes
    );
}

#[test]
fn a_place_where_different_servers_answer_counts_as_none() {
    let mut bench: Bench<3> =
        bench_of(std::array::from_fn(|i| machine(i as u128 + 1, None, &["vip:1", "n1:1"])));
    bench.front = Some(("vip:1", |_, dial| dial as usize % 3));
    for machine in &mut bench.machines {
        machine.me.canonical = vec!["vip:1".to_owned()];
        machine.wanted(may_found());
    }
    bench.run(LONG);
    assert_eq!(bench.founded, 0, "{:?}", bench.notes);
    let hint = "--join vip:1 is one server, and different ones have on_response there";
    assert!(
        bench.notes.iter().all(|notes| notes.iter().any(|note| note.contains(hint))),
        "{:?}",
        bench.notes
    );
    // Once there is a cluster they find it there.
    bench.machines[0].me.cluster = Some(Uuid::from_u128(9));
    bench.run(LONG);
    assert!(bench.machines.iter().all(|machine| machine.me.cluster == Some(Uuid::from_u128(9))));
}

#[test]
fn a_server_may_be_named_by_its_canonical_address() {
    let mut bench = bench(machine(1, None, &["one.example:1"]), machine(2, None, &["n1:1"]));
    bench.machines[1].founding = Founding::new(&["two.example:1".to_owned()]);
    bench.machines[1].dialer.join("two.example:1", Nanos::default());
    bench.machines[0].me.canonical = vec!["two.example:1".to_owned()];
    bench.machines[1].me.canonical = vec!["one.example:1".to_owned()];
    bench.machines.iter_mut().for_each(|machine| machine.wanted(may_found()));
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 1, "{:?}", bench.notes);
}

#[test]
fn a_place_that_is_known_to_be_the_server_itself_need_not_be_reached() {
    let mut bench = bench(machine(1, None, &["own:1", "n2:1"]), machine(2, None, &["n1:1"]));
    bench.nobody_at = Some("own:1");
    let own = BTreeMap::from([("own:1".to_owned(), "127.0.1.1:1".to_owned())]);
    bench.machines[0].wanted(Command::MayFound(MayFound { is_allowed: true, own }));
    bench.machines[1].wanted(may_found());
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 1, "{:?}", bench.notes);
}

#[test]
fn founders_are_not_warned_of_those_that_have_not_joined_yet() {
    let join = ["n1:1", "n2:1", "n3:1"];
    let mut bench: Bench<3> = bench_of(std::array::from_fn(|i| machine(i as u128 + 1, None, &join)));
    bench.machines.iter_mut().for_each(|machine| machine.wanted(may_found()));
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 1);
    assert!(bench.connected.iter().all(|connected| connected.len() == 2));
    let is_trouble = |note: &&String| note.contains("Cannot link") || note.contains("Refused");
    let trouble: Vec<_> = bench.notes.iter().flatten().filter(is_trouble).collect();
    assert!(trouble.is_empty(), "{trouble:?}");
}

#[test]
fn a_member_warns_of_a_server_that_does_not_find_its_cluster() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, None, &[]));
    let text = "belongs to no cluster yet and joins only a server it dials";
    let count = |bench: &Bench| bench.notes[0].iter().filter(|note| note.contains(text)).count();
    bench.run(A_WHILE);
    assert_eq!(count(&bench), 0, "it has hardly begun: {:?}", bench.notes);
    bench.run(LONG);
    assert_eq!(count(&bench), 1, "{:?}", bench.notes);
}

/// Two servers that belong to no cluster, whose operators named these to join.
fn newcomers(one: &[&str], other: &[&str]) -> Bench {
    let mut bench = bench(machine(1, None, one), machine(2, None, other));
    bench.machines.iter_mut().for_each(|machine| machine.wanted(may_found()));
    bench.run(A_WHILE);
    bench
}

#[test]
fn newcomers_that_name_each_other_make_one_cluster() {
    for both in [["n1:1", "n2:1"], ["n2:1", "n1:1"]] {
        for (one, other) in [(&both[..], &both[..]), (&["n2:1"], &["n1:1"]), (&both[..], &["n1:1"])] {
            let bench = newcomers(one, other);
            assert_eq!(bench.founded, 1, "{:?}", bench.notes);
            let clusters = bench.machines.each_ref().map(|machine| machine.me.cluster);
            assert!(clusters[0].is_some() && clusters[0] == clusters[1], "{clusters:?}");
            assert_eq!((bench.connected[0].len(), bench.connected[1].len()), (1, 1), "{:?}", bench.notes);
            assert!(
                bench.notes[0].iter().any(|note| note.ends_with("to be joined by \"n2\"")),
                "{:?}",
                bench.notes
            );
        }
    }
}

#[test]
fn no_newcomer_makes_a_cluster_alone() {
    let bench = newcomers(&["n1:1"], &["n1:1"]);
    assert_eq!(bench.founded, 0);
    let hint = "--join names only this one itself";
    assert!(bench.notes[0].iter().any(|note| note.contains(hint)), "{:?}", bench.notes);
    assert!(bench.notes[1].iter().any(|note| note.contains("not so: \"n1\"")), "{:?}", bench.notes);
}

#[test]
fn newcomers_wait_for_whom_they_cannot_reach_and_say_so_once() {
    // The third is where nobody answers.
    let mut bench = bench(machine(1, None, &["n2:1", "n3:1"]), machine(2, None, &["n1:1", "n3:1"]));
    bench.nobody_at = Some("n3:1");
    bench.machines.iter_mut().for_each(|machine| machine.wanted(may_found()));
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 0);
    bench.both_say(
        "every server of --join has on_response; missing: n3:1 (if that is this server itself, have it listen there with --bind",
    );
    let lines: Vec<usize> = bench.notes.iter().map(Vec::len).collect();
    assert_eq!(lines, [2, 2], "that, and that nobody answers at n3: {:?}", bench.notes);
}

#[test]
fn newcomers_that_expect_different_servers_make_no_cluster() {
    // Whoever is the third to one of them may be in a cluster that the other does not know of.
    let mut bench = bench(machine(1, None, &["n2:1"]), machine(2, None, &["n1:1", "n3:1"]));
    bench.nobody_at = Some("n3:1");
    bench.machines.iter_mut().for_each(|machine| machine.wanted(may_found()));
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 0);
    assert!(bench.notes[0].iter().any(|note| note.contains("not so: \"n2\"")), "{:?}", bench.notes);
}

#[test]
fn who_expected_another_to_make_the_cluster_makes_none_soon_after() {
    let mut bench = bench(machine(2, None, &["n3:1"]), machine(3, None, &["n2:1"]));
    bench.machines.iter_mut().for_each(|machine| machine.wanted(may_found()));
    bench.machines[0].founding.expected = Some([1, 2].map(|n| ServerId(Uuid::from_u128(n))).into());
    assert_eq!(bench.machines[0].expects().map(|servers| servers.len()), Some(2));
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 0, "for half a minute");
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 1);
}
