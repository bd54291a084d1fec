//! Every term, tried by a user with every combination of rights that matters, at every scope.
//!
//! What must happen is worked out here from the rules of the reference (section 15) alone: the word
//! of the narrowest scope counts, no word means no, database `rethinkdb` is not part of everything,
//! and writing takes reading. The first right that is missing is the one the error names.

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
use support::{House, Outcome};

/// A kind of right.
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

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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

/// What a term needs, in the order in which it is found missing.
type Needs = &'static [(Right, Place)];

const READ: Needs = &[(Right::Read, Place::Table)];
/// Writing takes reading, and the error names `write` whichever of the two is missing.
const WRITE: Needs = &[(Right::Write, Place::Table)];
const CONFIG: Needs = &[(Right::Config, Place::Table)];
const CONFIG_DB: Needs = &[(Right::Config, Place::Db)];
const CONFIG_ALL: Needs = &[(Right::Config, Place::Cluster)];
const CONFIG_DB_AND_TABLE: Needs = &[(Right::Config, Place::Db), (Right::Config, Place::Table)];
const READ_SYSTEM: Needs = &[(Right::Read, Place::System)];
const WRITE_SYSTEM: Needs = &[(Right::Read, Place::System), (Right::Write, Place::System)];
const WRITE_SYSTEM_AND_CONFIG: Needs =
    &[(Right::Read, Place::System), (Right::Write, Place::System), (Right::Config, Place::Table)];
const WRITE_SYSTEM_AND_CONFIG_ALL: Needs =
    &[(Right::Read, Place::System), (Right::Write, Place::System), (Right::Config, Place::Cluster)];
/// To leave out the hook is asked for before the write itself.
const CONFIG_AND_WRITE: Needs = &[(Right::Config, Place::Table), (Right::Write, Place::Table)];
const CONFIG_SYSTEM_DB: Needs = &[(Right::Config, Place::SystemDb)];
const NOTHING: Needs = &[];

/// Terms and what they need. `S` stands for `r.db("rethinkdb")`, `T` for `r.db("d").table("t")`.
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
    // What is visible of a table without a right to it: names, and how its indexes and replicas
    // do. RethinkDB asks for nothing here either.
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

/// What one right was set to at each scope: everywhere, on the database, on the table.
type Words = [Option<bool>; 3];

/// What a user was granted: the words for each of [`RIGHTS`], and for `d` and `rethinkdb` alike.
#[derive(Clone, Copy, Debug)]
struct Granted([Words; 3]);

impl Granted {
    fn words(&self, right: Right) -> Words {
        self.0[RIGHTS.iter().position(|other| *other == right).unwrap()]
    }

    /// The rule: the narrowest word counts, no word is no.
    fn has(&self, right: Right, place: Place) -> bool {
        let [everywhere, database, table] = self.words(right);
        let word = match place {
            Place::Cluster => everywhere,
            Place::Db => database.or(everywhere),
            Place::Table => table.or(database).or(everywhere),
            Place::System => table.or(database),
            Place::SystemDb => database,
        };
        let reads = right != Right::Write || self.has(Right::Read, place);
        word == Some(true) && reads
    }

    fn missing(&self, needs: Needs) -> Option<Right> {
        needs.iter().find(|(right, place)| !self.has(*right, *place)).map(|(right, _)| *right)
    }

    /// The permissions at one scope as ReQL writes them; all of them, so that old ones go.
    fn at(&self, scope: usize) -> String {
        let word = |right: &Right| match self.words(*right)[scope] {
            None => format!("{}: null", right.name()),
            Some(word) => format!("{}: {word}", right.name()),
        };
        RIGHTS.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

/// Every word of one right at every scope, with the other two unset or granted everywhere.
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
                    // On database `rethinkdb` only its own grants count.
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
fn as_admin(house: &House, text: &str) {
    run(house, "admin", text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn run(house: &House, user: &str, text: &str) -> Result<Outcome, QueryError> {
    let text = text.replace("T.", "T!.");
    let text = if text == "T" { "r.db(\"d\").table(\"t\")".to_owned() } else { text };
    let text = text
        .replace("T!.", "r.db(\"d\").table(\"t\").")
        .replace(", T)", ", r.db(\"d\").table(\"t\"))")
        .replace("S.", "r.db(\"rethinkdb\").");
    let term = syntax::to_wire(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    house.run(user, term, Map::new())
}

/// Database `d` with table `t` and a row, and nothing of what terms make.
fn furnish(house: &House) {
    for text in [
        "r.branch(r.db_list().contains(\"d\"), r.db_drop(\"d\"), 1)",
        "r.branch(r.db_list().contains(\"e\"), r.db_drop(\"e\"), 1)",
        "r.db_create(\"d\")",
        "r.db(\"d\").table_create(\"t\")",
        "T.insert({id: 1, n: 1})",
        "S.table(\"users\").filter(u => u[\"id\"].ne(\"admin\")).delete()",
        "S.table(\"users\").insert([{id: \"bob\", password: false}, {id: \"carol\", password: false}])",
    ] {
        as_admin(house, text);
    }
}

fn grant(house: &House, granted: &Granted, term: &str) {
    as_admin(house, &format!("r.grant(\"bob\", {{{}}})", granted.at(0)));
    as_admin(house, &format!("r.db(\"d\").grant(\"bob\", {{{}}})", granted.at(1)));
    as_admin(house, &format!("T.grant(\"bob\", {{{}}})", granted.at(2)));
    as_admin(house, &format!("S.grant(\"bob\", {{{}}})", granted.at(1)));
    let table = match term.split("table(\"").nth(1).and_then(|rest| rest.split('"').next()) {
        Some(table) if term.contains("S.table") => table,
        _ => "permissions",
    };
    as_admin(house, &format!("S.table(\"{table}\").grant(\"bob\", {{{}}})", granted.at(2)));
}

/// What the permission system said, if it said anything.
fn denial(outcome: Result<Outcome, QueryError>) -> Option<String> {
    match outcome {
        Err(QueryError::Eval(error)) if error.class().name() == "PERMISSION_ERROR" => {
            Some(error.message().to_owned())
        }
        Err(QueryError::Compile(error)) => panic!("not a legal term: {error}"),
        _ => None,
    }
}

/// What one term was tried with, and where it did not do what `needs` says.
#[derive(Default)]
struct Tried {
    cells: usize,
    wrong: Vec<String>,
}

/// One term for every user: one with each of the combinations, `admin`, and one without any grant.
fn try_term(term: &str, needs: Needs, combinations: &[Granted]) -> Tried {
    let house = House::new();
    let mut tried = Tried::default();
    let mut is_furnished = false;
    for granted in combinations {
        if !is_furnished {
            furnish(&house);
        }
        grant(&house, granted, term);
        let missing = granted.missing(needs);
        let expected = missing
            .map(|right| format!("User `bob` does not have the required `{}` permission.", right.name()));
        let said = denial(run(&house, "bob", term));
        if said != expected {
            tried.wrong.push(format!("{term} with {granted:?}: {said:?}, not {expected:?}"));
        }
        tried.cells += 1;
        // Who was refused has changed nothing, and reading does not either.
        is_furnished = said.is_some() || needs.iter().all(|(right, _)| *right == Right::Read);
    }
    furnish(&house);
    if let Some(said) = denial(run(&house, "admin", term)) {
        tried.wrong.push(format!("{term}: admin may do everything, but {said}"));
    }
    // What `admin` dropped is there again: what does not exist is said before what is not allowed.
    furnish(&house);
    let is_denied = denial(run(&house, "carol", term)).is_some();
    if is_denied == needs.is_empty() {
        tried.wrong.push(format!("{term} by carol, who was granted nothing: denied is {is_denied}"));
    }
    tried.cells += 2;
    tried
}

#[test]
fn every_term_asks_for_the_rights_the_rules_name() {
    let combinations = combinations();
    let tried: Vec<Tried> = TERMS.iter().map(|(term, needs)| try_term(term, needs, &combinations)).collect();
    let cells: usize = tried.iter().map(|tried| tried.cells).sum();
    let wrong: Vec<&str> = tried.iter().flat_map(|tried| &tried.wrong).take(20).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{cells} cells");
    assert!(cells >= 5_000, "{cells} cells");
}

#[test]
fn a_rule_that_is_not_kept_is_found_out() {
    let combinations = combinations();
    let wrong: [(&str, Needs); 5] = [
        ("T.count()", WRITE),
        ("T.get(1).update({n: 2})", READ),
        ("T.index_drop(\"i\")", CONFIG_DB),
        ("S.table(\"users\").count()", &[(Right::Read, Place::Cluster)]),
        ("r.db_list()", CONFIG_ALL),
    ];
    for (term, needs) in wrong {
        assert!(!try_term(term, needs, &combinations).wrong.is_empty(), "{term}");
    }
}

/// A cursor of `bob` that has given its first batch.
fn begun(house: &House, text: &str) -> Cursor {
    let text = text.replace("T.", "r.db(\"d\").table(\"t\").");
    let options = Map::from_iter([("max_batch_rows".to_owned(), 2.into())]);
    let query = support::query(syntax::to_wire(&text).unwrap(), options).unwrap();
    match house.session("bob").run(&query, Arc::default()).unwrap().answer {
        Answer::Stream(mut cursor) => {
            assert!(!cursor.next_batch().unwrap().done, "{text}");
            *cursor
        }
        Answer::Atom(datum) => panic!("{text}: no stream but {datum:?}"),
    }
}

#[test]
fn who_may_read_no_more_gets_no_further_batch() {
    for house in [House::new(), House::far(None)] {
        furnish(&house);
        as_admin(&house, "T.insert(r.range(100).map(i => ({id: i, n: i})), conflict: \"replace\")");
        as_admin(&house, "T.index_create(\"n\")");
        as_admin(&house, "T.index_wait()");
        for text in [
            "T.filter(x => true)",
            "T.get_all(1, 2, 3, 4, 5, 6, 7, 8, 9)",
            "T.order_by(index: \"n\")",
            "T.between(3, 90, index: \"n\").map(x => x[\"n\"])",
            "r.expr([1, 2, 3, 4, 5]).union(T.limit(50))",
            "r.range(3).concat_map(x => T.limit(30))",
        ] {
            as_admin(&house, "T.grant(\"bob\", {read: true})");
            let mut cursor = begun(&house, text);
            // Something else has changed.
            as_admin(&house, "T.grant(\"carol\", {read: true})");
            assert_eq!(cursor.next_batch().unwrap().items.len(), 2, "{text}");
            as_admin(&house, "T.grant(\"bob\", {read: false})");
            let error = cursor.next_batch().expect_err(text);
            assert_eq!(error.class().name(), "PERMISSION_ERROR", "{text}: {error}");
        }
    }
}

#[test]
fn leaving_the_machine_asks_for_connect_everywhere() {
    for word in ["null", "true", "false"] {
        for others in ["null", "true"] {
            let house = House::new();
            furnish(&house);
            let rights = format!("read: {others}, write: {others}, config: {others}, connect: {word}");
            as_admin(&house, &format!("r.grant(\"bob\", {{{rights}}})"));
            as_admin(&house, "r.db(\"d\").grant(\"bob\", {read: true})");
            for term in [
                "r.http(\"http://host.invalid/\")",
                "T.map(x => r.http(\"http://host.invalid/\"))",
                "r.expr([1]).map(x => r.http(\"http://host.invalid/\"))",
            ] {
                let expected = (word != "true")
                    .then(|| "User `bob` does not have the required `connect` permission.".to_owned());
                assert_eq!(denial(run(&house, "bob", term)), expected, "{term} with {rights}");
                assert_eq!(denial(run(&house, "admin", term)), None, "{term}");
            }
        }
    }
}

#[test]
fn what_comes_to_be_while_it_is_dropped_is_dropped_with_a_right_only() {
    let house = House::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for drop in ["r.db(\"made\").table_drop(\"t\")", "r.db_drop(\"made\")"] {
            let (house, is_over) = (&house, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    let dropped = run(house, "bob", drop);
                    assert!(dropped.is_err(), "bob may not: {drop}");
                }
            });
        }
        let _over = Over(&is_over);
        for _ in 0..100 {
            for term in ["r.db_create(\"made\")", "r.db(\"made\").table_create(\"t\")", "r.db_drop(\"made\")"]
            {
                as_admin(&house, term);
            }
        }
    });
}

/// Ends what others do when it goes, however the test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
