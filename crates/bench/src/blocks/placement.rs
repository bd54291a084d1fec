//! Who holds what of a table, as `table_config` says it: BigchainDB's statements about placement are
//! about numbers of servers by role.

use std::collections::BTreeSet;

use serde_json::Value;

/// The servers of one table by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Servers that hold a primary replica.
    pub primaries: BTreeSet<String>,
    /// Servers that hold another one.
    pub secondaries: BTreeSet<String>,
}

impl Roles {
    /// Reads a row of `table_config`, or what `config()` answers.
    pub fn of(config: &Value) -> Roles {
        let mut roles = Roles::default();
        for shard in config["shards"].as_array().into_iter().flatten() {
            let primary = shard["primary_replica"].as_str().unwrap_or_default();
            for replica in shard["replicas"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let role = if replica == primary { &mut roles.primaries } else { &mut roles.secondaries };
                role.insert(replica.to_owned());
            }
        }
        roles
    }

    /// Servers with primary replicas and no other.
    pub fn only_primaries(&self) -> usize {
        self.primaries.difference(&self.secondaries).count()
    }

    /// Servers with other replicas and no primary.
    pub fn only_secondaries(&self) -> usize {
        self.secondaries.difference(&self.primaries).count()
    }

    /// Servers that hold anything.
    pub fn all(&self) -> BTreeSet<String> {
        self.primaries.union(&self.secondaries).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Roles;

    #[test]
    fn roles_are_counted_by_server() {
        let roles = Roles::of(&json!({"shards": [
            {"primary_replica": "a", "replicas": ["a", "c"]},
            {"primary_replica": "b", "replicas": ["a", "b"]},
        ]}));
        assert_eq!((roles.only_primaries(), roles.only_secondaries()), (1, 1));
        assert_eq!(roles.all().len(), 3);
        assert_eq!(Roles::of(&json!(null)), Roles::default());
    }
}
