//! The four statements about placement in the BigchainDB report, and further properties.

use super::*;
use crate::{PeerId, ReplicaConfig};
use uuid::Uuid;

fn server(n: usize, tag: &'static str) -> ServerConfig {
    let id = ServerId(Uuid::from_u128(n as u128 + 1));
    ServerConfig {
        id,
        name: Text::from(format!("s{n}")),
        tags: vec![Text::from_static(tag)],
        cache_size_mb: None,
        addresses: Vec::new(),
        catalog: ReplicaConfig { server: id, peer: PeerId(n as u64), voting: true },
        is_proxy: false,
    }
}

fn servers(count: usize) -> Vec<ServerConfig> {
    (0..count).map(|n| server(n, "default")).collect()
}

fn goal(shards: usize, replicas: usize) -> PlacementGoal {
    PlacementGoal {
        shards,
        replicas: [(Text::from_static("default"), replicas)].into(),
        primary_tag: Text::from_static("default"),
        nonvoting_tags: Vec::new(),
    }
}

/// The number of replicas and of primaries on each server.
fn roles(places: &[ShardPlaces]) -> BTreeMap<ServerId, (usize, usize)> {
    let mut roles: BTreeMap<ServerId, (usize, usize)> = BTreeMap::new();
    for shard in places {
        let distinct: BTreeSet<_> = shard.replicas.iter().map(|(server, _)| server).collect();
        assert_eq!(distinct.len(), shard.replicas.len(), "one replica per server");
        assert_eq!(shard.replicas[0], (shard.primary, true));
        for (server, _) in &shard.replicas {
            let role = roles.entry(*server).or_default();
            role.0 += 1;
            role.1 += usize::from(*server == shard.primary);
        }
    }
    roles
}

#[track_caller]
fn even(places: &[ShardPlaces], servers: usize) {
    let roles = roles(places);
    for count in [|r: &(usize, usize)| r.0, |r: &(usize, usize)| r.1] {
        let most = roles.values().map(count).max().unwrap_or(0);
        let least = if roles.len() < servers { 0 } else { roles.values().map(count).min().unwrap_or(0) };
        assert!(most - least <= 1, "{least} to {most}: {roles:?}");
    }
}

fn weigh(places: &[ShardPlaces]) -> Load {
    roles(places).into_iter().map(|(s, (all, first))| (s, (all * 8 + first * 2) as u64)).collect()
}

#[test]
fn primaries_have_half_of_the_servers_and_secondaries_the_other_half() {
    let places = place(&servers(64), &Load::new(), &goal(32, 2), &[]).unwrap();
    let roles = roles(&places);
    assert_eq!(roles.values().filter(|role| **role == (1, 1)).count(), 32, "only a primary");
    assert_eq!(roles.values().filter(|role| **role == (1, 0)).count(), 32, "only a secondary");
}

#[test]
fn a_second_replica_adds_no_writes_to_servers_with_a_primary() {
    let alone = place(&servers(64), &Load::new(), &goal(32, 1), &[]).unwrap();
    let double = place(&servers(64), &Load::new(), &goal(32, 2), &[]).unwrap();
    let most = |places: &[ShardPlaces]| {
        let with_primary = roles(places).into_values().filter(|(_, primaries)| *primaries > 0);
        with_primary.map(|(all, _)| all).max()
    };
    assert_eq!(most(&alone), most(&double));
}

#[test]
fn a_second_table_is_placed_on_the_empty_servers() {
    let first = place(&servers(64), &Load::new(), &goal(32, 1), &[]).unwrap();
    let second = place(&servers(64), &weigh(&first), &goal(32, 1), &[]).unwrap();
    let (first, second) = (roles(&first), roles(&second));
    assert_eq!((first.len(), second.len()), (32, 32));
    assert!(second.keys().all(|server| !first.contains_key(server)));
}

#[test]
fn a_replication_factor_of_k_makes_k_replicas_of_everything() {
    for k in 1..=5 {
        let places = place(&servers(64), &Load::new(), &goal(32, k), &[]).unwrap();
        assert!(places.iter().all(|shard| shard.replicas.len() == k));
        assert_eq!(roles(&places).values().map(|role| role.0).sum::<usize>(), 32 * k);
    }
}

#[test]
fn replicas_and_primaries_are_spread_evenly() {
    for servers_count in 1..=17 {
        for shards in [1, 2, 3, 5, 16, 31, 256] {
            for replicas in 1..=servers_count.min(5) {
                let places =
                    place(&servers(servers_count), &Load::new(), &goal(shards, replicas), &[]).unwrap();
                assert_eq!(places.len(), shards);
                even(&places, servers_count);
            }
        }
    }
}

#[test]
fn an_even_placement_does_not_change() {
    for (count, shards, replicas) in [(3, 3, 3), (5, 7, 2), (16, 16, 2), (4, 1, 2)] {
        let places = place(&servers(count), &Load::new(), &goal(shards, replicas), &[]).unwrap();
        let again = place(&servers(count), &Load::new(), &goal(shards, replicas), &places).unwrap();
        let sorted = |places: &[ShardPlaces]| -> Vec<BTreeSet<_>> {
            places.iter().map(|shard| shard.replicas.iter().copied().collect()).collect()
        };
        assert_eq!(sorted(&places), sorted(&again), "{count} servers, {shards} shards");
        let primaries = |places: &[ShardPlaces]| places.iter().map(|s| s.primary).collect::<Vec<_>>();
        assert_eq!(primaries(&places), primaries(&again));
    }
}

#[test]
fn new_servers_take_their_share_and_other_shards_stay() {
    let before = place(&servers(2), &Load::new(), &goal(8, 1), &[]).unwrap();
    let after = place(&servers(4), &Load::new(), &goal(8, 1), &before).unwrap();
    even(&after, 4);
    let moved = before.iter().zip(&after).filter(|(a, b)| a.primary != b.primary).count();
    assert_eq!(moved, 4, "half of the shards move to the two new servers");
}

#[test]
fn an_additional_replica_moves_no_other() {
    let before = place(&servers(5), &Load::new(), &goal(4, 2), &[]).unwrap();
    let after = place(&servers(5), &Load::new(), &goal(4, 3), &before).unwrap();
    even(&after, 5);
    for (before, after) in before.iter().zip(&after) {
        let stays = before.replicas.iter().filter(|replica| after.replicas.contains(replica)).count();
        assert_eq!(stays, 2);
    }
}

#[test]
fn tags_select_the_servers_of_primaries_and_of_nonvoting_replicas() {
    let mut all = servers(3);
    all.extend((3..6).map(|n| server(n, "remote")));
    let goal = PlacementGoal {
        shards: 3,
        replicas: [(Text::from_static("default"), 2), (Text::from_static("remote"), 1)].into(),
        primary_tag: Text::from_static("default"),
        nonvoting_tags: vec![Text::from_static("remote")],
    };
    for shard in place(&all, &Load::new(), &goal, &[]).unwrap() {
        let remote: BTreeSet<ServerId> = all[3..].iter().map(|server| server.id).collect();
        assert!(!remote.contains(&shard.primary));
        assert_eq!(shard.replicas.len(), 3);
        assert!(shard.replicas.iter().all(|(server, voting)| *voting != remote.contains(server)));
    }
}

#[test]
fn placement_errors_have_the_texts_of_reql() {
    #[track_caller]
    fn refused(servers: &[ServerConfig], goal: &PlacementGoal, expected: &str) {
        let error = place(servers, &Load::new(), goal, &[]).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    refused(&servers(2), &goal(1, 0), "You must set `replicas` to at least one.");
    refused(&servers(2), &goal(257, 1), "Maximum number of shards is 256.");
    refused(
        &servers(2),
        &goal(1, 3),
        "Can't put 3 replicas on servers with the tag `default` because there are only 2",
    );
    refused(&[server(0, "x")], &goal(1, 1), "Could not find any servers with server tag `default`.");
    let mut both = servers(2);
    both[1].tags.push(Text::from_static("x"));
    let mut goal = goal(1, 1);
    goal.replicas.insert(Text::from_static("x"), 1);
    refused(&both, &goal, "Server tags `x` and `default` overlap; the server `s1` has both tags.");
    goal.primary_tag = Text::from_static("y");
    refused(&both, &goal, "Can't use server tag `y` for primary replicas");
}

#[test]
fn temporary_replicas_are_no_load_for_other_tables() {
    let before = crate::config::fixture::shard(3, b"", &[1, 2]);
    let mut after = before.clone();
    assert!(after.add_temporary(crate::config::fixture::server(3), || PeerId(33)));
    assert_eq!(load_of([&after].into_iter()), load_of([&before].into_iter()));
}
