//! The placement of a table's replicas according to `table_config`: BigchainDB's statements about placement count
//! servers by role.

use std::collections::BTreeSet;

use serde_json::Value;

/// The servers of one table by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Servers that hold a primary replica.
    pub primaries: BTreeSet<String>,
    /// Servers that hold a secondary replica.
    pub secondaries: BTreeSet<String>,
}

impl Roles {
    /// Reads a row of `table_config`, or the result of `config()`.
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

    /// The number of servers with primary replicas only.
    pub fn only_primaries(&self) -> usize {
        self.primaries.difference(&self.secondaries).count()
    }

    /// The number of servers with secondary replicas only.
    pub fn only_secondaries(&self) -> usize {
        self.secondaries.difference(&self.primaries).count()
    }

    /// The servers that hold any replica.
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
