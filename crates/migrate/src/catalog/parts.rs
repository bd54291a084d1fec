//! The parts of a source, to find those that came after a migration began. Pure.

use std::collections::BTreeMap;

use super::facts::{Catalog, Grant};

/// The databases, tables, indexes, users and permissions of a source by their names, each with the contents that a migration takes over
/// once. `is_part`: only a part of the cluster is moved, without users.
pub fn parts(source: &Catalog, is_part: bool) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    for table in &source.tables {
        parts.insert(format!("table {}", table.name), table.id.clone());
        for index in &table.indexes {
            parts.insert(format!("index {} of {}", index.name, table.name), index.base64());
        }
    }
    if is_part {
        return parts;
    }
    parts.extend(source.names.iter().map(|(db, _)| (format!("database {db}"), String::new())));
    let users = source.users.iter().flatten();
    parts.extend(users.map(|user| (format!("user {}", user.name), String::new())));
    let grants = source.grants.iter().flatten();
    parts.extend(grants.map(|grant| (name_of_grant(grant), grant.permissions.to_string())));
    parts
}

fn name_of_grant(grant: &Grant) -> String {
    let scope = match (&grant.db, &grant.table) {
        (Some(db), Some(table)) => format!("{db}.{table}"),
        (Some(db), None) => db.clone(),
        (None, _) => "everything".to_owned(),
    };
    format!("permissions of {} on {scope}", grant.user)
}

/// The names of what `now` has and `before` does not have, or has with other contents, with the remedy if a further run is none.
pub fn added(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let is_new = |(name, contents): &(&String, &String)| before.get(*name) != Some(*contents);
    now.iter().filter(is_new).map(|(name, _)| with_remedy(name, before.contains_key(name))).collect()
}

fn with_remedy(name: &str, is_changed: bool) -> String {
    match name.split(' ').next() {
        Some("table") if is_changed => format!("{name} (made anew: this needs another --state)"),
        Some("index") if is_changed => format!("{name} (made anew: drop that of the target first)"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::catalog::facts::{Index, TableFacts, User};
    use crate::queries::TableName;

    fn index(name: &str, data: &str) -> Index {
        Index {
            name: name.to_owned(),
            function: json!({"data": data}),
            query: String::new(),
            multi: false,
            geo: false,
            outdated: false,
            ready: true,
        }
    }

    fn table(name: &str, id: &str, indexes: Vec<Index>) -> TableFacts {
        TableFacts {
            name: TableName::new("shop", name),
            id: id.to_owned(),
            primary_key: "id".to_owned(),
            durability: "hard".to_owned(),
            write_acks: "majority".to_owned(),
            compression: "default".to_owned(),
            shards: Vec::new(),
            indexes,
            hook: None,
            rows: 0,
        }
    }

    fn grant(permissions: Value) -> Grant {
        Grant { user: "ann".to_owned(), db: Some("shop".to_owned()), table: None, permissions }
    }

    #[test]
    fn everything_new_is_named() {
        let before = Catalog {
            names: vec![("shop".to_owned(), Vec::new())],
            tables: vec![table("a", "1", vec![index("i", "x")])],
            grants: Some(vec![grant(json!({"read": true}))]),
            ..Catalog::default()
        };
        assert_eq!(added(&parts(&before, false), &parts(&before, false)), [] as [&str; 0]);
        let now = Catalog {
            names: vec![("shop".to_owned(), Vec::new()), ("blog".to_owned(), Vec::new())],
            tables: vec![table("a", "1", vec![index("i", "y"), index("j", "")]), table("b", "2", Vec::new())],
            users: Some(vec![User { name: "ann".to_owned(), has_password: false }]),
            grants: Some(vec![grant(json!({"read": false}))]),
            ..Catalog::default()
        };
        assert_eq!(
            added(&parts(&before, false), &parts(&now, false)),
            [
                "database blog",
                "index i of shop.a (made anew: drop that of the target first)",
                "index j of shop.a",
                "permissions of ann on shop",
                "table shop.b",
                "user ann",
            ]
        );
        assert_eq!(added(&parts(&before, true), &parts(&now, true)).len(), 3);
        let anew = Catalog { tables: vec![table("a", "9", Vec::new())], ..Catalog::default() };
        let said = added(&parts(&before, true), &parts(&anew, true));
        assert_eq!(said, ["table shop.a (made anew: this needs another --state)"]);
    }
}
