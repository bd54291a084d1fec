//! The plan of a migration: tables, indexes, hooks, users and permissions, and everything that is left out. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::facts::{Catalog, Grant, Index, TableFacts, User};
use super::shards::{Placement, place};
use super::users::Passwords;
use crate::queries::TableName;

/// Clocks that differ by more are worth a word.
const CLOCK_MS_MAX: i64 = 1000;

/// The facts and flags from which a plan is made.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub source: &'a Catalog,
    pub target: &'a Catalog,
    /// Tables that an earlier run has made, with their ids at the target (empty if it ended before that was known).
    pub known: &'a BTreeMap<TableName, String>,
    /// Whether tables that the target has already are merged.
    pub into_existing: bool,
    /// Whether only a part of the cluster is moved: then users are not.
    pub is_part: bool,
    pub passwords: &'a Passwords,
}

/// A table to be made or merged.
#[derive(Clone, PartialEq, Debug)]
pub struct TablePlan {
    pub facts: TableFacts,
    /// How it is made; `None` if it exists.
    pub placement: Option<Placement>,
    /// Rows that only the target has stay.
    pub keeps_extra: bool,
    /// Indexes that the target does not have.
    pub indexes: Vec<Index>,
    pub notes: Vec<String>,
}

impl TablePlan {
    /// The options of `table_create`.
    pub fn create_options(&self) -> Option<Value> {
        let placement = self.placement.as_ref()?;
        let mut options = Map::new();
        options.insert("primary_key".to_owned(), json!(self.facts.primary_key));
        options.insert("durability".to_owned(), json!(self.facts.durability));
        placement.add_options(&mut options);
        Some(Value::Object(options))
    }
}

/// The treatment of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserPlan {
    /// With a new password, or with none as at the source.
    Create { name: String, password: Option<String> },
    /// The target has a user of that name, which stays as it is.
    Exists { name: String },
    /// It has a password at the source, and none in the file.
    NoPassword { name: String },
}

/// All that a migration makes.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub databases: Vec<String>,
    pub tables: Vec<TablePlan>,
    pub users: Vec<UserPlan>,
    pub grants: Vec<Grant>,
    /// Everything that is not copied, with the reason.
    pub omitted: Vec<String>,
    /// Facts to know before.
    pub notes: Vec<String>,
    /// Why the migration does not begin.
    pub refusals: Vec<String>,
}

/// Makes the plan.
pub fn plan(request: Request<'_>) -> Plan {
    let mut plan = Plan::default();
    plan.notes.extend(clocks(request.source, request.target));
    if request.source.server_id == request.target.server_id && !request.source.server_id.is_empty() {
        plan.refusals.push("source and target are the same server".to_owned());
    }
    let is_wanted = |db: &str| request.source.tables.iter().any(|table| table.name.db == db);
    for (db, tables) in &request.source.names {
        if request.target.has_db(db) || !(is_wanted(db) || (tables.is_empty() && !request.is_part)) {
            continue;
        }
        plan.notes.extend(other_case("database", db, request.target.names.iter().map(|(name, _)| name)));
        plan.databases.push(db.clone());
    }
    for facts in &request.source.tables {
        match table(&request, facts) {
            Ok(table) => plan.tables.push(table),
            Err(refusal) => plan.refusals.push(refusal),
        }
    }
    plan.omitted.extend(
        request.source.unread.iter().map(|what| {
            format!("{what}; settings are those of a new table, and what it lists is not copied")
        }),
    );
    users(&request, &mut plan);
    plan.omitted.push("names, tags and cache sizes of servers: the target has other servers".to_owned());
    plan
}

fn table(request: &Request<'_>, facts: &TableFacts) -> Result<TablePlan, String> {
    let name = &facts.name;
    let mut notes = Vec::new();
    let existing = request.target.table(name);
    let known = request.known.get(name);
    let is_known = existing.zip(known).is_some_and(|(table, id)| id.is_empty() || *id == table.id);
    if known.is_some_and(|id| !id.is_empty()) && !is_known {
        return Err(format!(
            "{name}: the target's table is not the one that the state of this migration knows; begin anew with another --state, or \
             remove the file"
        ));
    }
    if let Some(table) = existing {
        if !is_known && !request.into_existing {
            return Err(format!(
                "{name}: the target has this table already; drop it there, leave it out with --only, or merge with --into-existing \
                 (rows of the source replace those with the same key, other rows stay)"
            ));
        }
        if table.primary_key != facts.primary_key {
            return Err(format!(
                "{name}: the primary key is `{}` in the source and `{}` in the target",
                facts.primary_key, table.primary_key
            ));
        }
    }
    let in_db = |db: &&(String, Vec<String>)| db.0 == name.db;
    if let Some((_, tables)) = request.target.names.iter().find(in_db).filter(|_| existing.is_none()) {
        notes.extend(other_case("table", &name.table, tables.iter()));
    }
    if facts.hook.is_some() {
        notes.push("its write hook is set last, as it would change the copied rows".to_owned());
    }
    let none = Vec::new();
    let servers = |catalog: &Catalog| catalog.servers.clone().unwrap_or_default();
    let placement =
        existing.is_none().then(|| place(&facts.shards, &servers(request.source), &servers(request.target)));
    notes.extend(placement.iter().flat_map(|placement| placement.notes.clone()));
    let indexes = indexes(facts, existing.map_or(&none, |table| &table.indexes), &mut notes);
    let keeps_extra = existing.is_some() && !is_known;
    Ok(TablePlan { facts: facts.clone(), placement, keeps_extra, indexes, notes })
}

/// The indexes that the target does not have.
fn indexes(facts: &TableFacts, existing: &[Index], notes: &mut Vec<String>) -> Vec<Index> {
    let mut missing = Vec::new();
    for index in &facts.indexes {
        match existing.iter().find(|other| other.name == index.name) {
            None => missing.push(index.clone()),
            Some(other) if other.base64() == index.base64() => {}
            Some(_) => notes.push(format!("index `{}` exists with another function, and stays", index.name)),
        }
        if index.outdated {
            notes.push(format!(
                "index `{}` is outdated at the source: it is built with the present rules",
                index.name
            ));
        }
    }
    missing
}

fn users(request: &Request<'_>, plan: &mut Plan) {
    if request.is_part {
        plan.omitted.push("users and permissions: only a part of the source is moved (--only)".to_owned());
        return;
    }
    let users = request.source.users.as_deref().unwrap_or_default();
    let existing = request.target.users.as_deref().unwrap_or_default();
    plan.users = users.iter().map(|user| user_plan(user, existing, request.passwords)).collect();
    for user in &plan.users {
        if let UserPlan::NoPassword { name } = user {
            plan.omitted.push(format!(
                "user `{name}` and its permissions: passwords cannot be read, and --new-passwords has none for it"
            ));
        }
    }
    if let Some(unknown) = request.passwords.keys().find(|name| !users.iter().any(|user| user.name == **name))
    {
        plan.refusals.push(format!("--new-passwords: the source has no user `{unknown}`"));
    }
    let is_left_out = |name: &str| {
        plan.users.iter().any(|user| matches!(user, UserPlan::NoPassword { name: other } if other == name))
    };
    let grants = request.source.grants.iter().flatten();
    plan.grants = grants.filter(|grant| !is_left_out(&grant.user)).cloned().collect();
}

fn user_plan(user: &User, existing: &[User], passwords: &Passwords) -> UserPlan {
    let name = user.name.clone();
    let password = passwords.get(&name).cloned();
    match existing.iter().any(|other| other.name == name) {
        true => UserPlan::Exists { name },
        false if user.has_password && password.is_none() => UserPlan::NoPassword { name },
        false => UserPlan::Create { name, password },
    }
}

fn clocks(source: &Catalog, target: &Catalog) -> Option<String> {
    let ahead = target.clock_ahead_ms - source.clock_ahead_ms;
    (ahead.abs() > CLOCK_MS_MAX).then(|| {
        let (which, seconds) = (if ahead > 0 { "ahead" } else { "behind" }, ahead.abs() as f64 / 1000.0);
        format!(
            "the target's clock is {seconds:.1} s {which} of the source's: rows are copied as they are, but r.now() and hooks that \
             store it jump at the cut-over; set the clocks first"
        )
    })
}

fn other_case<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a String>) -> Option<String> {
    let similar = known.into_iter().find(|other| other.eq_ignore_ascii_case(name) && *other != name)?;
    Some(format!(
        "the target has a {what} `{similar}`: `{name}` becomes another one, as names differ by case"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::facts::{Hook, ServerFacts};

    fn table_facts(name: &str) -> TableFacts {
        TableFacts {
            name: TableName::new("shop", name),
            id: format!("id-{name}"),
            primary_key: "id".to_owned(),
            durability: "soft".to_owned(),
            write_acks: "single".to_owned(),
            compression: "default".to_owned(),
            shards: Vec::new(),
            indexes: Vec::new(),
            hook: None,
            rows: 5,
        }
    }

    fn catalog(id: &str, tables: &[&str]) -> Catalog {
        let owned: Vec<String> = tables.iter().map(|name| (*name).to_owned()).collect();
        Catalog {
            server_id: id.to_owned(),
            names: vec![("shop".to_owned(), owned)],
            tables: tables.iter().map(|name| table_facts(name)).collect(),
            servers: Some(vec![ServerFacts { id: id.to_owned(), name: id.to_owned(), tags: Vec::new() }]),
            users: Some(Vec::new()),
            grants: Some(Vec::new()),
            ..Catalog::default()
        }
    }

    struct Case {
        source: Catalog,
        target: Catalog,
        known: BTreeMap<TableName, String>,
        into_existing: bool,
        passwords: Passwords,
    }

    impl Case {
        fn new(source: Catalog, target: Catalog) -> Case {
            let (known, passwords) = (BTreeMap::new(), Passwords::new());
            Case { source, target, known, into_existing: false, passwords }
        }

        fn plan(&self) -> Plan {
            plan(Request {
                source: &self.source,
                target: &self.target,
                known: &self.known,
                into_existing: self.into_existing,
                is_part: false,
                passwords: &self.passwords,
            })
        }
    }

    #[test]
    fn a_new_table_has_the_settings_of_the_source() {
        let mut case = Case::new(catalog("a", &["users"]), Catalog::default());
        case.source.tables[0].hook = Some(Hook { function: Value::Null, query: String::new() });
        let plan = case.plan();
        assert_eq!((plan.databases, plan.refusals.len()), (vec!["shop".to_owned()], 0));
        let options = plan.tables[0].create_options().unwrap();
        assert_eq!(options["durability"], "soft");
        assert_eq!((options["shards"].as_u64(), options["replicas"].as_u64()), (Some(1), Some(1)));
        assert!(plan.tables[0].notes[0].contains("write hook"));
    }

    #[test]
    fn an_existing_table_is_merged_only_when_that_is_wanted() {
        let mut case = Case::new(catalog("a", &["users"]), catalog("b", &["users"]));
        assert!(case.plan().refusals[0].contains("--into-existing"));
        case.into_existing = true;
        let plan = case.plan();
        assert!(plan.tables[0].keeps_extra && plan.tables[0].create_options().is_none());
        case.target.tables[0].primary_key = "email".to_owned();
        assert!(case.plan().refusals[0].contains("primary key"));
        // The table of an earlier run is no strange one.
        let mut case = Case::new(catalog("a", &["users"]), catalog("b", &["users"]));
        case.known.insert(TableName::new("shop", "users"), "id-users".to_owned());
        assert!(!case.plan().tables[0].keeps_extra);
        case.known.insert(TableName::new("shop", "users"), "id-of-another".to_owned());
        assert!(case.plan().refusals[0].contains("--state"));
    }

    #[test]
    fn names_of_other_case_are_told() {
        let plan = Case::new(catalog("a", &["Users"]), catalog("b", &["users"])).plan();
        assert!(plan.tables[0].notes[0].contains("`users`: `Users` becomes another one"), "{plan:?}");
    }

    #[test]
    fn a_user_needs_a_new_password() {
        let mut case = Case::new(catalog("a", &[]), catalog("b", &[]));
        let user = |name: &str, has_password| User { name: name.to_owned(), has_password };
        let grant = |user: &str| Grant {
            user: user.to_owned(),
            db: None,
            table: None,
            permissions: json!({"read": true}),
        };
        case.source.users =
            Some(vec![user("ann", true), user("bob", true), user("eve", false), user("old", true)]);
        case.source.grants = Some(vec![grant("ann"), grant("bob")]);
        case.target.users = Some(vec![user("old", true)]);
        case.passwords.insert("ann".to_owned(), "x".to_owned());
        let plan = case.plan();
        assert_eq!(
            plan.users[0],
            UserPlan::Create { name: "ann".to_owned(), password: Some("x".to_owned()) }
        );
        assert_eq!(plan.users[1], UserPlan::NoPassword { name: "bob".to_owned() });
        assert_eq!(plan.users[2], UserPlan::Create { name: "eve".to_owned(), password: None });
        assert_eq!(plan.users[3], UserPlan::Exists { name: "old".to_owned() });
        assert_eq!(plan.grants.len(), 1);
        case.passwords.insert("zoe".to_owned(), "x".to_owned());
        assert!(case.plan().refusals[0].contains("zoe"));
    }

    #[test]
    fn one_server_is_not_both_sides_and_clocks_are_compared() {
        assert!(Case::new(catalog("a", &[]), catalog("a", &[])).plan().refusals[0].contains("same server"));
        let mut case = Case::new(catalog("a", &[]), catalog("b", &[]));
        case.target.clock_ahead_ms = -90_000;
        assert!(case.plan().notes[0].contains("90.0 s behind"));
    }
}
