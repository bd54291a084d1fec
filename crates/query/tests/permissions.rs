//! Every term as a user with every relevant combination of permissions, at every scope.
//!
//! The expected results follow only from the rules in the reference (section 15): the narrowest scope that sets a
//! permission decides, an unset permission is denied, global permissions do not cover database `rethinkdb`, and writing
//! includes reading. The error names the first missing permission.

#![allow(clippy::unwrap_used)]

// The notation is shared with the tests of `reql`, which know the crate by this name.
extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rekindle_query::{Answer, Cursor, QueryError};
use serde_json::Map;
use support::{Outcome, TestNode};

/// A kind of permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Read,
    Write,
    Config,
}

const RIGHTS: [Right; 3] = [Right::Read, Right::Write, Right::Config];

impl Right {
    fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Config => "config",
        }
    }
}

/// Where a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Cluster,
    /// Database `d`.
    Db,
    /// Table `d.t`.
    Table,
    /// A table of database `rethinkdb`.
    System,
    /// Database `rethinkdb` itself.
    SystemDb,
}

/// The permissions that a term needs, in the order of the checks.
type Needs = &'static [(Right, Target)];

const READ: Needs = &[(Right::Read, Target::Table)];
/// Writing includes reading, and the error names `write` whichever of the two is missing.
const WRITE: Needs = &[(Right::Write, Target::Table)];
const CONFIG: Needs = &[(Right::Config, Target::Table)];
const CONFIG_DB: Needs = &[(Right::Config, Target::Db)];
const CONFIG_ALL: Needs = &[(Right::Config, Target::Cluster)];
const CONFIG_DB_AND_TABLE: Needs = &[(Right::Config, Target::Db), (Right::Config, Target::Table)];
const READ_SYSTEM: Needs = &[(Right::Read, Target::System)];
const WRITE_SYSTEM: Needs = &[(Right::Read, Target::System), (Right::Write, Target::System)];
const WRITE_SYSTEM_AND_CONFIG: Needs =
    &[(Right::Read, Target::System), (Right::Write, Target::System), (Right::Config, Target::Table)];
const WRITE_SYSTEM_AND_CONFIG_ALL: Needs =
    &[(Right::Read, Target::System), (Right::Write, Target::System), (Right::Config, Target::Cluster)];
/// The permission to skip the hook is checked before the write itself.
const CONFIG_AND_WRITE: Needs = &[(Right::Config, Target::Table), (Right::Write, Target::Table)];
const CONFIG_SYSTEM_DB: Needs = &[(Right::Config, Target::SystemDb)];
const NOTHING: Needs = &[];

/// Terms and their permissions. `S` stands for `r.db("rethinkdb")`, `T` for `r.db("d").table("t")`.
const TERMS: &[(&str, Needs)] = &[
    ("T", READ),
    ("T.get(1)", READ),
    ("T.get(1)[\"n\"]", READ),
    ("T.get_all(1, 2)", READ),
    ("T.between(0, 5)", READ),
    ("T.count()", READ),
    ("T.filter({n: 1})", READ),
    ("T.map(x => x[\"n\"]).sum()", READ),
    ("T.order_by(\"n\")", READ),
    ("T.group(\"n\").count()", READ),
    ("T.distinct()", READ),
    ("T.max(\"n\")", READ),
    ("T.nth(0)", READ),
    ("T.limit(1)", READ),
    ("T.is_empty()", READ),
    ("T.contains({id: 1, n: 1})", READ),
    ("T.reduce((a, b) => a)", READ),
    ("T.union([1])", READ),
    ("T.inner_join([1], (a, b) => true)", READ),
    ("r.expr([1]).eq_join(x => x, T)", READ),
    ("r.expr([1]).map(x => T.get(x))", READ),
    ("r.branch(T.count().gt(0), 1, 2)", READ),
    ("T.get(1)[\"n\"].default(3)", READ),
    ("T.info()", READ),
    ("T.get(1).do(x => x)", READ),
    ("r.expr(1).do(x => T.get(x))", READ),
    ("T.insert({id: 7})", WRITE),
    ("T.insert([{id: 7}, {id: 8}])", WRITE),
    ("T.insert({id: 1, n: 2}, conflict: \"replace\")", WRITE),
    ("T.get(1).update({n: 2})", WRITE),
    ("T.get(1).update(x => {n: x[\"n\"].add(1)})", WRITE),
    ("T.get(1).replace({id: 1})", WRITE),
    ("T.get(1).delete()", WRITE),
    ("T.update({n: 2})", WRITE),
    ("T.replace(x => x)", WRITE),
    ("T.delete()", WRITE),
    ("T.filter({n: 1}).delete()", WRITE),
    ("T.between(0, 5).update({n: 3})", WRITE),
    ("r.expr([1]).for_each(x => T.insert({id: x.add(20)}))", WRITE),
    ("r.expr(1).do(x => T.insert({id: 9}))", WRITE),
    ("T.get(1).update({n: T.count()}, non_atomic: true)", WRITE),
    ("T.sync()", WRITE),
    ("r.db(\"d\").table_create(\"u\")", CONFIG_DB),
    ("r.db(\"d\").table_drop(\"t\")", CONFIG),
    ("T.config()", CONFIG),
    ("r.db(\"d\").config()", CONFIG_DB),
    ("T.reconfigure(shards: 2, replicas: 1)", CONFIG),
    ("T.reconfigure(shards: 2, replicas: 1, dry_run: true)", CONFIG),
    ("T.rebalance()", CONFIG),
    ("T.index_create(\"i\", x => x[\"n\"])", CONFIG),
    ("T.index_drop(\"i\")", CONFIG),
    ("T.index_rename(\"i\", \"j\")", CONFIG),
    ("T.set_write_hook((c, o, n) => n)", CONFIG),
    ("T.set_write_hook(null)", CONFIG),
    ("T.get_write_hook()", CONFIG),
    ("T.insert({id: 7}, ignore_write_hook: true)", CONFIG_AND_WRITE),
    ("T.get(1).delete(ignore_write_hook: true)", CONFIG_AND_WRITE),
    ("T.get_all(1, index: \"id\")", READ),
    ("T.min(index: \"id\")", READ),
    ("T.fold(0, (a, b) => 1)", READ),
    ("T.order_by(index: \"id\").limit(1)", READ),
    ("T.filter(x => T.get(1).eq(x))", READ),
    ("r.expr([1]).concat_map(x => T.coerce_to(\"array\"))", READ),
    ("r.expr([1]).filter(x => T.count().gt(x))", READ),
    ("r.expr([1]).union(T.limit(1))", READ),
    ("r.expr([1]).reduce((a, b) => T.count()).add(T.count())", READ),
    // Names of a table, and the state of its indexes and replicas, are visible without permission. RethinkDB has no
    // check here either.
    ("T.index_wait()", NOTHING),
    ("T.index_list()", NOTHING),
    ("T.index_status()", NOTHING),
    ("r.db_create(\"e\")", CONFIG_ALL),
    ("r.db_drop(\"d\")", CONFIG_DB_AND_TABLE),
    ("S.reconfigure(emergency_repair: \"unsafe_rollback\")", CONFIG_SYSTEM_DB),
    ("S.table(\"users\").count()", READ_SYSTEM),
    ("S.table(\"table_config\").filter({name: \"t\"})", READ_SYSTEM),
    ("S.table(\"stats\").get([\"cluster\"])", READ_SYSTEM),
    ("S.table(\"permissions\").count()", READ_SYSTEM),
    ("S.table(\"server_config\").count()", READ_SYSTEM),
    ("S.table(\"server_status\").count()", READ_SYSTEM),
    ("S.table(\"cluster_config\").count()", READ_SYSTEM),
    ("S.table(\"db_config\").count()", READ_SYSTEM),
    ("S.table(\"table_status\").count()", READ_SYSTEM),
    ("S.table(\"current_issues\").count()", READ_SYSTEM),
    ("S.table(\"jobs\").count()", READ_SYSTEM),
    ("S.table(\"logs\").count()", READ_SYSTEM),
    ("r.expr([1]).map(x => S.table(\"users\").count())", READ_SYSTEM),
    (
        "S.table(\"table_config\").filter({name: \"t\"}).update({durability: \"soft\"})",
        WRITE_SYSTEM_AND_CONFIG,
    ),
    ("S.table(\"db_config\").insert({name: \"e\"})", WRITE_SYSTEM_AND_CONFIG_ALL),
    ("S.table(\"users\").insert({id: \"eve\", password: false})", WRITE_SYSTEM),
    ("S.table(\"users\").filter({id: \"eve\"}).delete()", WRITE_SYSTEM),
    ("r.grant(\"carol\", {read: true})", WRITE_SYSTEM),
    ("T.grant(\"carol\", {read: true})", WRITE_SYSTEM),
    ("r.db_list()", NOTHING),
    ("r.db(\"d\").table_list()", NOTHING),
    ("T.status()", NOTHING),
    ("T.wait()", NOTHING),
    ("r.expr(1).add(1)", NOTHING),
    ("T.type_of()", NOTHING),
];

/// The setting of one permission globally, on the database, and on the table.
type Settings = [Option<bool>; 3];

/// The grants of a user: the settings for each of [`RIGHTS`], the same for `d` and `rethinkdb`.
#[derive(Clone, Copy, Debug)]
struct Granted([Settings; 3]);

impl Granted {
    fn words(&self, right: Right) -> Settings {
        self.0[RIGHTS.iter().position(|other| *other == right).unwrap()]
    }

    /// The rule: the narrowest setting decides, no setting denies.
    fn has(&self, right: Right, place: Target) -> bool {
        let [everywhere, database, table] = self.words(right);
        let word = match place {
            Target::Cluster => everywhere,
            Target::Db => database.or(everywhere),
            Target::Table => table.or(database).or(everywhere),
            Target::System => table.or(database),
            Target::SystemDb => database,
        };
        let reads = right != Right::Write || self.has(Right::Read, place);
        word == Some(true) && reads
    }

    fn missing(&self, needs: Needs) -> Option<Right> {
        needs.iter().find(|(right, place)| !self.has(*right, *place)).map(|(right, _)| *right)
    }

    /// All permissions at one scope in ReQL, so that earlier grants are replaced.
    fn at(&self, scope: usize) -> String {
        let word = |right: &Right| match self.words(*right)[scope] {
            None => format!("{}: null", right.name()),
            Some(word) => format!("{}: {word}", right.name()),
        };
        RIGHTS.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

/// Every setting of one permission at every scope, with the other two unset or granted everywhere.
fn combinations() -> Vec<Granted> {
    const WORDS: [Option<bool>; 3] = [None, Some(true), Some(false)];
    let mut all = Vec::new();
    for (varied, _) in RIGHTS.iter().enumerate() {
        for n in 0..27 {
            let words = [WORDS[n / 9], WORDS[n / 3 % 3], WORDS[n % 3]];
            for others in 0..4 {
                let mut granted = [[None; 3]; 3];
                let mut rest = (0..3).filter(|i| *i != varied);
                for bit in [1, 2] {
                    let other = rest.next().unwrap();
                    // Only its own grants count on database `rethinkdb`.
                    granted[other] =
                        if others & bit == 0 { [None; 3] } else { [Some(true), Some(true), None] };
                }
                granted[varied] = words;
                all.push(Granted(granted));
            }
        }
    }
    all
}

#[track_caller]
fn as_admin(test_node: &TestNode, text: &str) {
    run(test_node, "admin", text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn run(test_node: &TestNode, user: &str, text: &str) -> Result<Outcome, QueryError> {
    let text = text.replace("T.", "T!.");
    let text = if text == "T" { "r.db(\"d\").table(\"t\")".to_owned() } else { text };
    let text = text
        .replace("T!.", "r.db(\"d\").table(\"t\").")
        .replace(", T)", ", r.db(\"d\").table(\"t\"))")
        .replace("S.", "r.db(\"rethinkdb\").");
    let term = syntax::to_wire(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    test_node.run(user, term, Map::new())
}

/// Creates database `d` with table `t` and a row, and removes everything that terms have created.
fn set_up(test_node: &TestNode) {
    for text in [
        "r.branch(r.db_list().contains(\"d\"), r.db_drop(\"d\"), 1)",
        "r.branch(r.db_list().contains(\"e\"), r.db_drop(\"e\"), 1)",
        "r.db_create(\"d\")",
        "r.db(\"d\").table_create(\"t\")",
        "T.insert({id: 1, n: 1})",
        "S.table(\"users\").filter(u => u[\"id\"].ne(\"admin\")).delete()",
        "S.table(\"users\").insert([{id: \"bob\", password: false}, {id: \"carol\", password: false}])",
    ] {
        as_admin(test_node, text);
    }
}

fn grant(test_node: &TestNode, granted: &Granted, term: &str) {
    as_admin(test_node, &format!("r.grant(\"bob\", {{{}}})", granted.at(0)));
    as_admin(test_node, &format!("r.db(\"d\").grant(\"bob\", {{{}}})", granted.at(1)));
    as_admin(test_node, &format!("T.grant(\"bob\", {{{}}})", granted.at(2)));
    as_admin(test_node, &format!("S.grant(\"bob\", {{{}}})", granted.at(1)));
    let table = match term.split("table(\"").nth(1).and_then(|rest| rest.split('"').next()) {
        Some(table) if term.contains("S.table") => table,
        _ => "permissions",
    };
    as_admin(test_node, &format!("S.table(\"{table}\").grant(\"bob\", {{{}}})", granted.at(2)));
}

/// The permission error, if there is one.
fn denial(outcome: Result<Outcome, QueryError>) -> Option<String> {
    match outcome {
        Err(QueryError::Eval(error)) if error.class().name() == "PERMISSION_ERROR" => {
            Some(error.message().to_owned())
        }
        Err(QueryError::Compile(error)) => panic!("not a legal term: {error}"),
        _ => None,
    }
}

/// The attempts of one term, and those with a result other than `needs` says.
#[derive(Default)]
struct Attempt {
    cells: usize,
    wrong: Vec<String>,
}

/// Runs a term as a user with each of the combinations, as `admin`, and as a user without any grant.
fn try_term(term: &str, needs: Needs, combinations: &[Granted]) -> Attempt {
    let test_node = TestNode::new();
    let mut tried = Attempt::default();
    let mut is_set_up = false;
    for granted in combinations {
        if !is_set_up {
            set_up(&test_node);
        }
        grant(&test_node, granted, term);
        let missing = granted.missing(needs);
        let expected = missing
            .map(|right| format!("User `bob` does not have the required `{}` permission.", right.name()));
        let denied = denial(run(&test_node, "bob", term));
        if denied != expected {
            tried.wrong.push(format!("{term} with {granted:?}: {denied:?}, not {expected:?}"));
        }
        tried.cells += 1;
        // A refused term has changed nothing, and reads do not either.
        is_set_up = denied.is_some() || needs.iter().all(|(right, _)| *right == Right::Read);
    }
    set_up(&test_node);
    if let Some(denied) = denial(run(&test_node, "admin", term)) {
        tried.wrong.push(format!("{term}: admin may do everything, but {denied}"));
    }
    // Creates again what `admin` has dropped: a missing table is reported before a missing permission.
    set_up(&test_node);
    let is_denied = denial(run(&test_node, "carol", term)).is_some();
    if is_denied == needs.is_empty() {
        tried.wrong.push(format!("{term} by carol, who was granted nothing: denied is {is_denied}"));
    }
    tried.cells += 2;
    tried
}

#[test]
fn every_term_needs_the_permissions_of_the_rules() {
    let combinations = combinations();
    let tried: Vec<Attempt> =
        TERMS.iter().map(|(term, needs)| try_term(term, needs, &combinations)).collect();
    let cells: usize = tried.iter().map(|tried| tried.cells).sum();
    let wrong: Vec<&str> = tried.iter().flat_map(|tried| &tried.wrong).take(20).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{cells} cells");
    assert!(cells >= 5_000, "{cells} cells");
}

#[test]
fn a_broken_rule_is_detected() {
    let combinations = combinations();
    let wrong: [(&str, Needs); 5] = [
        ("T.count()", WRITE),
        ("T.get(1).update({n: 2})", READ),
        ("T.index_drop(\"i\")", CONFIG_DB),
        ("S.table(\"users\").count()", &[(Right::Read, Target::Cluster)]),
        ("r.db_list()", CONFIG_ALL),
    ];
    for (term, needs) in wrong {
        assert!(!try_term(term, needs, &combinations).wrong.is_empty(), "{term}");
    }
}

/// A cursor of `bob` after its first batch.
fn begun(test_node: &TestNode, text: &str) -> Cursor {
    let text = text.replace("T.", "r.db(\"d\").table(\"t\").");
    let options = Map::from_iter([("max_batch_rows".to_owned(), 2.into())]);
    let query = support::query(syntax::to_wire(&text).unwrap(), options).unwrap();
    match test_node.session("bob").run(&query, Arc::default()).unwrap().answer {
        Answer::Stream(mut cursor) => {
            assert!(!cursor.next_batch().unwrap().done, "{text}");
            *cursor
        }
        Answer::Atom(datum) => panic!("{text}: no stream but {datum:?}"),
    }
}

#[test]
fn a_user_without_permission_gets_no_further_batch() {
    for test_node in [TestNode::new(), TestNode::remote(None)] {
        set_up(&test_node);
        as_admin(&test_node, "T.insert(r.range(100).map(i => ({id: i, n: i})), conflict: \"replace\")");
        as_admin(&test_node, "T.index_create(\"n\")");
        as_admin(&test_node, "T.index_wait()");
        for text in [
            "T.filter(x => true)",
            "T.get_all(1, 2, 3, 4, 5, 6, 7, 8, 9)",
            "T.order_by(index: \"n\")",
            "T.between(3, 90, index: \"n\").map(x => x[\"n\"])",
            "r.expr([1, 2, 3, 4, 5]).union(T.limit(50))",
            "r.range(3).concat_map(x => T.limit(30))",
        ] {
            as_admin(&test_node, "T.grant(\"bob\", {read: true})");
            let mut cursor = begun(&test_node, text);
            // The catalog has changed otherwise.
            as_admin(&test_node, "T.grant(\"carol\", {read: true})");
            assert_eq!(cursor.next_batch().unwrap().items.len(), 2, "{text}");
            as_admin(&test_node, "T.grant(\"bob\", {read: false})");
            let error = cursor.next_batch().expect_err(text);
            assert_eq!(error.class().name(), "PERMISSION_ERROR", "{text}: {error}");
        }
    }
}

#[test]
fn http_needs_the_global_permission_to_connect() {
    for word in ["null", "true", "false"] {
        for others in ["null", "true"] {
            let test_node = TestNode::new();
            set_up(&test_node);
            let rights = format!("read: {others}, write: {others}, config: {others}, connect: {word}");
            as_admin(&test_node, &format!("r.grant(\"bob\", {{{rights}}})"));
            as_admin(&test_node, "r.db(\"d\").grant(\"bob\", {read: true})");
            for term in [
                "r.http(\"http://host.invalid/\")",
                "T.map(x => r.http(\"http://host.invalid/\"))",
                "r.expr([1]).map(x => r.http(\"http://host.invalid/\"))",
            ] {
                let expected = (word != "true")
                    .then(|| "User `bob` does not have the required `connect` permission.".to_owned());
                assert_eq!(denial(run(&test_node, "bob", term)), expected, "{term} with {rights}");
                assert_eq!(denial(run(&test_node, "admin", term)), None, "{term}");
            }
        }
    }
}

#[test]
fn a_table_created_during_a_drop_is_only_dropped_with_permission() {
    let test_node = TestNode::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for drop in ["r.db(\"made\").table_drop(\"t\")", "r.db_drop(\"made\")"] {
            let (test_node, is_over) = (&test_node, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    let dropped = run(test_node, "bob", drop);
                    assert!(dropped.is_err(), "bob may not: {drop}");
                }
            });
        }
        let _over = StopOnDrop(&is_over);
        for _ in 0..100 {
            for term in ["r.db_create(\"made\")", "r.db(\"made\").table_create(\"t\")", "r.db_drop(\"made\")"]
            {
                as_admin(&test_node, term);
            }
        }
    });
}

/// Ends the other threads when it is dropped, also if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
