//! How a table of the source is spread over the servers of the target.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::facts::{ServerFacts, Shard};

/// The tag of all servers.
const EVERY_SERVER: &str = "default";

/// Shards and replicas of a new table.
#[derive(Clone, PartialEq, Debug)]
pub struct Placement {
    pub shards: usize,
    pub replicas: Replicas,
    /// Differences from the source, with the reason.
    pub notes: Vec<String>,
}

/// How many replicas a shard has, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replicas {
    Anywhere(usize),
    /// Numbers by the tag of the servers, and the tag of the leader's server.
    ByTag(BTreeMap<String, usize>, String),
}

impl Placement {
    /// Adds the options of `table_create`.
    pub fn add_options(&self, options: &mut Map<String, Value>) {
        options.insert("shards".to_owned(), json!(self.shards));
        match &self.replicas {
            Replicas::Anywhere(count) => options.insert("replicas".to_owned(), json!(count)),
            Replicas::ByTag(counts, primary) => {
                options.insert("primary_replica_tag".to_owned(), json!(primary));
                options.insert("replicas".to_owned(), json!(counts))
            }
        };
    }
}

/// As many shards as at the source, and as many replicas as the target has servers for; on servers with the same tags if both sides
/// have them.
pub fn place(shards: &[Shard], source: &[ServerFacts], target: &[ServerFacts]) -> Placement {
    let mut notes = Vec::new();
    if shards.iter().any(|shard| !shard.nonvoting.is_empty()) {
        notes.push("replicas without a vote are not made: add them with reconfigure".to_owned());
    }
    if let Some((counts, primary)) = by_tag(shards, source)
        && counts.iter().all(|(tag, count)| servers_with(target, tag) >= *count)
    {
        return Placement { shards: shards.len(), replicas: Replicas::ByTag(counts, primary), notes };
    }
    let wanted = shards
        .iter()
        .map(|shard| shard.replicas.len().saturating_sub(shard.nonvoting.len()))
        .max()
        .unwrap_or(1);
    let possible = wanted.clamp(1, target.len().max(1));
    if possible < wanted {
        notes.push(format!("{possible} of {wanted} replicas: the target has no more servers"));
    }
    Placement { shards: shards.len().max(1), replicas: Replicas::Anywhere(possible), notes }
}

/// The numbers of replicas by tag, if every shard has the same and each server of the table has one tag beside `default`.
fn by_tag(shards: &[Shard], servers: &[ServerFacts]) -> Option<(BTreeMap<String, usize>, String)> {
    let tag_of = |name: &String| {
        let server = servers.iter().find(|server| server.name == *name)?;
        let mut tags = server.tags.iter().filter(|tag| *tag != EVERY_SERVER);
        tags.next().filter(|_| tags.next().is_none()).cloned()
    };
    let of_shard = |shard: &Shard| {
        let mut counts = BTreeMap::new();
        for replica in shard.replicas.iter().filter(|name| !shard.nonvoting.contains(name)) {
            *counts.entry(tag_of(replica)?).or_insert(0) += 1;
        }
        Some(counts)
    };
    let first = of_shard(shards.first()?)?;
    let primary = tag_of(shards.first()?.replicas.first()?)?;
    let same = shards.iter().all(|shard| of_shard(shard).as_ref() == Some(&first));
    same.then_some((first, primary))
}

fn servers_with(servers: &[ServerFacts], tag: &str) -> usize {
    servers.iter().filter(|server| server.tags.iter().any(|own| own == tag)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(named: &[(&str, &[&str])]) -> Vec<ServerFacts> {
        let server = |(name, tags): &(&str, &[&str])| ServerFacts {
            id: (*name).to_owned(),
            name: (*name).to_owned(),
            tags: tags.iter().chain(&[EVERY_SERVER]).map(|tag| (*tag).to_owned()).collect(),
        };
        named.iter().map(server).collect()
    }

    fn shard(replicas: &[&str], nonvoting: &[&str]) -> Shard {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Shard { replicas: owned(replicas), nonvoting: owned(nonvoting) }
    }

    #[test]
    fn there_are_as_many_replicas_as_servers_allow() {
        let source = servers(&[("a", &[]), ("b", &[]), ("c", &[])]);
        let shards = [shard(&["a", "b", "c"], &[]), shard(&["b", "a", "c"], &["c"])];
        let placed = place(&shards, &source, &servers(&[("x", &[]), ("y", &[])]));
        assert_eq!((placed.shards, placed.replicas), (2, Replicas::Anywhere(2)));
        assert_eq!(placed.notes.len(), 2);
        let unknown = place(&[], &[], &[]);
        assert_eq!((unknown.shards, unknown.replicas, unknown.notes.len()), (1, Replicas::Anywhere(1), 0));
    }

    #[test]
    fn tags_are_kept_where_both_sides_have_them() {
        let source = servers(&[("a", &["eu"]), ("b", &["us"]), ("c", &["us"])]);
        let shards = [shard(&["b", "a", "c"], &[])];
        let counts = BTreeMap::from([("eu".to_owned(), 1), ("us".to_owned(), 2)]);
        let same = place(&shards, &source, &source);
        assert_eq!(same.replicas, Replicas::ByTag(counts, "us".to_owned()));
        let mut options = Map::new();
        same.add_options(&mut options);
        assert_eq!(options["replicas"]["us"], 2);
        let other = place(&shards, &source, &servers(&[("x", &["eu"]), ("y", &[]), ("z", &[])]));
        assert_eq!(other.replicas, Replicas::Anywhere(3));
    }
}
