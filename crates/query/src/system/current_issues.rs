//! `rethinkdb.current_issues`: present problems of the cluster; empty if there are none.
//!
//! Each node shows its own problems (log file, memory, disk). The node that runs the query adds problems of tables,
//! names and connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::{
    Catalog, CatalogOutage, Node, Readiness, ReplicaState, ServerId, ShardState, TableHandle, readiness,
};
use datum::{Datum, Object, Text, Time};
use engine::DamagedFile;
use io::{Nanos, task};
use log::{Stall, StallCause};
use reql::EvalError;
use uuid::Uuid;

use super::fields::{object, strings};
use super::table_config::{db_name, named_server, server_name};
use super::table_status::status_row_of;
use crate::context::Cx;
use crate::table::{Identifiers, SystemTable};

pub(super) struct CurrentIssues;

/// The namespace of issue ids: the same problem has the same id on all nodes.
const ISSUES: Uuid = Uuid::from_u128(0x2a5e_66f1_9d0c_4b7e_8f35_11c2_94d7_e06b);

/// A problem.
struct Issue {
    kind: &'static str,
    is_critical: bool,
    /// Identifies its subject, for the id.
    about: String,
    description: String,
    info: Object,
}

impl Issue {
    fn into_row(self) -> Object {
        let id = Uuid::new_v5(&ISSUES, format!("{} {}", self.kind, self.about).as_bytes());
        object([
            ("id", id.to_string().into()),
            ("type", self.kind.into()),
            ("critical", self.is_critical.into()),
            ("description", self.description.into()),
            ("info", Datum::Object(self.info)),
        ])
    }
}

impl SystemTable for CurrentIssues {
    fn name(&self) -> &'static str {
        "current_issues"
    }

    fn is_per_server(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let mut issues: Vec<Issue> = Vec::new();
        issues.extend(log_file(cx, identifiers));
        issues.extend(memory(cx, identifiers));
        issues.extend(disk(cx, identifiers));
        issues.extend(damage(cx, identifiers));
        if !cx.serves_remote {
            // Both may wait for servers that hang, so they run at the same time.
            let unseen = on_thread(cx, |node| node.connectivity().missing());
            let trouble = on_thread(cx, |node| node.states().catalog_outage());
            let of_tables = table_issues(cx, identifiers);
            issues.extend(connectivity_issue(cx, &unseen(), identifiers));
            issues.extend(trouble().map(|trouble| catalog_issue(cx, &trouble, identifiers)));
            issues.extend(collisions(cx));
            issues.extend(of_tables);
        }
        Ok(issues.into_iter().map(Issue::into_row).collect())
    }
}

/// Calls `ask` on another thread; the returned function waits for the result.
fn on_thread<T: Send + 'static>(cx: &Cx, ask: fn(&Node) -> T) -> impl FnOnce() -> T {
    let (sender, receiver) = task::channel();
    let (here, there) = (cx.service.clone(), cx.service.clone());
    // Without a thread it is called when the result is needed.
    let _ = task::spawn("issues", move || drop(sender.send(ask(there.node()))));
    move || receiver.recv().unwrap_or_else(|_| ask(here.node()))
}

fn log_file(cx: &Cx, identifiers: Identifiers) -> Option<Issue> {
    let message = cx.service.facts.logs.file_error()?;
    let name = server_name(cx, identifiers);
    let description = format!(
        "Server `{}` cannot write its log file: {message}. Lines since then are only in `rethinkdb.logs`.",
        cx.node().name()
    );
    Some(of_server(cx, "log_write_error", name, message, description))
}

fn memory(cx: &Cx, identifiers: Identifiers) -> Option<Issue> {
    let message = (cx.service.facts.memory_trouble.as_ref()?)()?;
    let name = server_name(cx, identifiers);
    let description = format!("Server `{}` is short of memory: {message}.", cx.node().name());
    Some(of_server(cx, "memory_error", name, message, description))
}

/// The log of this server makes no progress, or its disk makes nothing durable.
fn disk(cx: &Cx, identifiers: Identifiers) -> Option<Issue> {
    let (node, name) = (cx.node(), cx.node().name());
    let (message, description) = if let Some(stall) = node.stall_monitor().own_stall() {
        let message = why_stalled(node, stall);
        let remedy = match stall.cause {
            StallCause::Stopped => "until it is restarted",
            StallCause::Full | StallCause::Slow => "until this is fixed",
        };
        let description = format!(
            "Server `{name}` cannot write: {message}. Tables with a majority of replicas on other servers are led by those; \
             other tables with a replica on this server cannot be written {remedy}."
        );
        (message, description)
    } else {
        let since = moment(node, node.stall_monitor().hung_sync()?);
        let message = format!("an fsync has not finished since {since}");
        let description = format!(
            "Server `{name}` cannot make writes durable: {message}. Hard writes to tables without a majority of replicas on \
             other servers wait until this is fixed."
        );
        (message, description)
    };
    let name = server_name(cx, identifiers);
    Some(Issue { is_critical: true, ..of_server(cx, "disk_error", name, message, description) })
}

/// One issue for each damaged file of this server, and for each damaged row of other files.
fn damage(cx: &Cx, identifiers: Identifiers) -> Vec<Issue> {
    let catalog = cx.catalog();
    let issue = |about: &str, detail: String, description: String| {
        let issue = of_server(cx, "data_damage", server_name(cx, identifiers), detail, description);
        Issue { is_critical: true, about: format!("{} {about}", issue.about), ..issue }
    };
    let server = cx.node().name();
    let of_file = |file: DamagedFile| {
        let description = damaged_file(&server, &file, &tables_in(&catalog, &file));
        issue(&file.name, file.detail, description)
    };
    let of_row = |(key, detail): (Vec<u8>, String)| {
        let is_of = |table: &&Arc<TableHandle>| key.starts_with(table.config.id.as_bytes());
        let table = catalog.tables().into_iter().find(is_of)?;
        let name = format!("{}.{}", table.db.name, table.config.name);
        let description = format!(
            "Server `{server}` has a damaged row of `{name}`: {detail}. Reads of it fail, and all others are served. {REMEDY}"
        );
        Some(issue(&detail, detail.clone(), description))
    };
    let damaged = &cx.service.facts.damaged_files;
    let files = damaged.list().into_iter().map(of_file);
    files.chain(damaged.rows().into_iter().filter_map(of_row)).collect()
}

/// What becomes of damaged rows.
const REMEDY: &str = "If another server has a replica with these rows, this server replaces them by itself. Otherwise stop it, and write \
                      out the readable rows with `rekindle salvage`.";

fn damaged_file(server: &Text, file: &DamagedFile, tables: &[Text]) -> String {
    let name = &file.name;
    if file.is_discarded {
        return format!(
            "Server `{server}` has a damaged file, `{name}`. All rows in it were replaced by copies from other servers, and all \
             reads are served. The file is removed when the server is started again."
        );
    }
    let of = if tables.is_empty() { String::new() } else { format!(" It has rows of {}.", listed(tables)) };
    format!(
        "Server `{server}` has a damaged file, `{name}`. Reads of its damaged part fail, and all others are served.{of} {REMEDY}"
    )
}

/// The names of the tables whose keys may be in a damaged file.
fn tables_in(catalog: &Catalog, file: &DamagedFile) -> Vec<Text> {
    let Some((first, last)) = &file.keys else { return Vec::new() };
    let prefix = |key: &[u8]| key.get(..16).map(<[u8]>::to_vec);
    let (Some(first), Some(last)) = (prefix(first), prefix(last)) else { return Vec::new() };
    let is_inside = |id: &[u8; 16]| first.as_slice() <= &id[..] && &id[..] <= last.as_slice();
    let tables = catalog.tables().into_iter().filter(|table| is_inside(table.config.id.as_bytes()));
    tables.map(|table| format!("{}.{}", table.db.name, table.config.name).into()).collect()
}

/// Why the log of this server makes no progress, and since when.
fn why_stalled(node: &Node, stall: Stall) -> String {
    let since = moment(node, stall.since);
    match stall.cause {
        StallCause::Full => format!("the disk has been full since {since}"),
        StallCause::Slow => format!("the disk or the storage engine has not responded since {since}"),
        StallCause::Stopped => {
            let cause = node.log().stopped().map_or_else(String::new, |cause| format!(": {cause}"));
            format!("the log stopped at {since}{cause}; restart the server")
        }
    }
}

/// The start of a problem, in whole seconds, so that it is the same in every row.
fn moment(node: &Node, since: Nanos) -> String {
    let time = Time::new(node.unix_at(since).as_secs() as f64, 0);
    reql::op::iso8601::print(&time).unwrap_or_default()
}

fn of_server(cx: &Cx, kind: &'static str, server: Text, message: String, description: String) -> Issue {
    let about = cx.node().identity().server.to_string();
    let info = object([("servers", strings([server])), ("message", message.as_str().into())]);
    Issue { kind, is_critical: false, about, description, info }
}

/// Pairs of servers that are not connected to each other although another server is connected to both.
fn connectivity_issue(cx: &Cx, pairs: &[(ServerId, ServerId)], identifiers: Identifiers) -> Option<Issue> {
    let catalog = cx.catalog();
    let named = |server| named_server(&catalog, server, Identifiers::Name);
    let shown = pairs.iter().map(|(one, other)| format!("`{}` not to `{}`", named(*one), named(*other)));
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() {
        return None;
    }
    let description = format!(
        "Some servers are not connected to each other: {}. Tables may be unavailable to their clients.",
        shown.join(", ")
    );
    let mut servers: Vec<Text> =
        pairs.iter().map(|(one, _)| named_server(&catalog, *one, identifiers)).collect();
    servers.sort();
    servers.dedup();
    let message = "Server connectivity is non-transitive.";
    let info = object([("servers", strings(servers)), ("message", message.into())]);
    let about = String::new();
    Some(Issue { kind: "non_transitive_error", is_critical: false, about, description, info })
}

/// Servers with the same name.
fn collisions(cx: &Cx) -> Vec<Issue> {
    let catalog = cx.catalog();
    let mut servers: BTreeMap<Text, Vec<String>> = BTreeMap::new();
    for server in catalog.servers() {
        servers.entry(server.name.clone()).or_default().push(server.id.to_string());
    }
    servers.retain(|_, ids| ids.len() > 1);
    let issue = |(name, ids): (Text, Vec<String>)| {
        let description = format!(
            "Several servers are named `{name}`: {}. Give them different names in `rethinkdb.server_config`, or delete there \
             the row of one that is permanently lost.",
            ids.join(", ")
        );
        let listed = strings(ids.iter().map(|id| Text::from(id.as_str())));
        let info = object([("name", Datum::String(name)), ("ids", listed)]);
        Issue { kind: "server_name_collision", is_critical: true, about: ids.join(" "), description, info }
    };
    servers.into_iter().map(issue).collect()
}

/// The catalog cannot be changed.
fn catalog_issue(cx: &Cx, trouble: &CatalogOutage, identifiers: Identifiers) -> Issue {
    let catalog = cx.catalog();
    let named = |as_what| {
        let mut servers: Vec<Text> =
            trouble.gone.iter().map(|server| named_server(&catalog, *server, as_what)).collect();
        servers.sort();
        servers
    };
    let (gone, voters) = (named(Identifiers::Name), trouble.voters);
    let message = match (trouble.is_lost, trouble.leader) {
        (true, _) => {
            "No majority of the servers that vote on the cluster's configuration is connected.".to_owned()
        }
        (false, None) => {
            "The servers that vote on the cluster's configuration have not agreed on a leader.".to_owned()
        }
        (false, Some(leader)) => format!(
            "The leader of the cluster's configuration, `{}`, is connected to other servers, but not to this one.",
            named_server(&catalog, leader, Identifiers::Name)
        ),
    };
    let remedy = match trouble.is_lost {
        true => {
            " Connect the missing servers, or if they are permanently lost, use `reconfigure` with `emergency_repair` on the database \
             `rethinkdb`, which removes the servers that are not connected from the cluster."
        }
        false => "",
    };
    let description = format!(
        "The configuration of the cluster cannot be changed: databases, tables, indexes, users and servers stay as they \
         are. {message}{}{remedy}",
        disconnected_voters(&gone, voters)
    );
    let info = object([("servers", strings(named(identifiers))), ("message", message.into())]);
    let (kind, about) = ("catalog_availability", String::new());
    Issue { kind, is_critical: true, about, description, info }
}

/// A sentence about the voters that are not connected, with a space before it; nothing if all are connected.
fn disconnected_voters(gone: &[Text], voters: usize) -> String {
    let (count, verb) = (gone.len(), if gone.len() == 1 { "is" } else { "are" });
    match count {
        0 => String::new(),
        _ => format!(" {count} of the {voters} voting servers {verb} not connected: {}.", listed(gone)),
    }
}

fn listed(names: &[Text]) -> String {
    let shown: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    shown.join(", ")
}

/// Whether a table has a problem. A table whose connected replicas still copy rows while it is used has none.
fn has_issue(ready: Readiness, gone: &BTreeSet<ServerId>) -> bool {
    let is_available = ready.writes && ready.reads && ready.outdated_reads;
    !(ready.all_replicas || is_available && gone.is_empty())
}

/// The servers with replicas that are not connected: some may come back, removed ones will not.
fn missing(catalog: &Catalog, gone: &BTreeSet<ServerId>, ready: Readiness) -> String {
    let named = |servers: Vec<&ServerId>| {
        let mut names: Vec<Text> =
            servers.into_iter().map(|server| named_server(catalog, *server, Identifiers::Name)).collect();
        names.sort();
        names.join(", ")
    };
    let (removed, away): (Vec<_>, Vec<_>) = gone.iter().partition(|server| catalog.is_removed(**server));
    let mut sentences = Vec::new();
    if !away.is_empty() {
        sentences.push(format!("Not connected: {}.", named(away)));
    }
    if !removed.is_empty() {
        sentences.push(format!("Permanently removed from the cluster: {}.", named(removed)));
        // With a quorum they are removed from the table without a repair.
        if !ready.writes {
            sentences
                .push("`reconfigure` with `emergency_repair` repairs the table without them.".to_owned());
        }
    }
    sentences.join(" ")
}

fn table_issues(cx: &Cx, identifiers: Identifiers) -> Vec<Issue> {
    let catalog = cx.catalog();
    let tables: Vec<&TableHandle> = catalog.tables().into_iter().map(|table| &**table).collect();
    let states = cx.node().states().table_states(&tables);
    let issue =
        |(table, shards): (&&TableHandle, &Vec<ShardState>)| table_issue(cx, table, shards, identifiers);
    tables.iter().zip(&states).filter_map(issue).collect()
}

/// A table that is not fully available, or has replicas on servers that are not connected.
fn table_issue(
    cx: &Cx,
    table: &TableHandle,
    shards: &[ShardState],
    identifiers: Identifiers,
) -> Option<Issue> {
    let catalog = cx.catalog();
    let ready = readiness(shards);
    let replicas = shards.iter().flat_map(|shard| &shard.replicas);
    let gone: BTreeSet<ServerId> = replicas
        .filter(|(_, state)| *state == ReplicaState::Disconnected)
        .map(|(server, _)| *server)
        .collect();
    if !has_issue(ready, &gone) {
        return None;
    }
    let what = uses(ready, shards.iter().any(|shard| shard.leader.is_some()));
    let (db, name) = (&table.db.name, &table.config.name);
    let holders = shards.iter().flat_map(|shard| &shard.replicas).map(|(server, _)| *server);
    let leaders = shards.iter().filter(|shard| !shard.takes_writes).filter_map(|shard| shard.leader);
    let stalled: BTreeSet<ServerId> =
        holders.filter(|server| is_stalled(cx, *server)).chain(leaders).collect();
    let mut stalled: Vec<Text> =
        stalled.into_iter().map(|server| named_server(&catalog, server, Identifiers::Name)).collect();
    stalled.sort();
    let why = match gone.is_empty() {
        true if !stalled.is_empty() => {
            format!("Servers that cannot write: {}.", listed(&stalled))
        }
        false => missing(&catalog, &gone, ready),
        // Removed servers are in no configuration, and may have been the majority.
        true => "Its servers are connected and elect a leader, which takes a few seconds. If that does not succeed, the \
                 majority of its replicas was on other servers, and `reconfigure` with `emergency_repair` repairs the \
                 table without them."
            .to_owned(),
    };
    let description = format!("Table `{db}.{name}` {what}. {why}");
    let status = status_row_of(cx, table, shards, identifiers);
    let part = |field: &str| status.get(field).unwrap_or(Datum::Null);
    let shown = match identifiers {
        Identifiers::Name => Datum::String(name.clone()),
        Identifiers::Uuid => part("id"),
    };
    let info = object([
        ("db", Datum::String(db_name(table, identifiers))),
        ("table", shown),
        ("status", part("status")),
        ("shards", part("shards")),
    ]);
    let about = table.config.id.uuid().to_string();
    Some(Issue { kind: "table_availability", is_critical: !ready.writes, about, description, info })
}

/// Whether a connected server cannot write.
fn is_stalled(cx: &Cx, server: ServerId) -> bool {
    match server == cx.node().identity().server {
        true => cx.node().stall_monitor().own_stall().is_some(),
        false => cx.node().stall_monitor().is_stalled(server),
    }
}

/// What clients can do with a table, of which some shards may have a leader.
fn uses(ready: Readiness, some_are_led: bool) -> &'static str {
    match ready {
        ready if ready.writes => "can be read and written, but has fewer replicas than it should",
        ready if ready.reads => "can be read but not written",
        _ if some_are_led => "can be used in part only: not all of its shards have a leader",
        ready if ready.outdated_reads => "can only be read with `read_mode` \"outdated\"",
        _ => "cannot be used",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disconnected_voters_are_counted_and_named() {
        let [beta, gamma] = ["beta", "gamma"].map(Text::from);
        assert_eq!(disconnected_voters(&[], 2), "");
        let one = " 1 of the 2 voting servers is not connected: `beta`.";
        assert_eq!(disconnected_voters(std::slice::from_ref(&beta), 2), one);
        let two = " 2 of the 3 voting servers are not connected: `beta`, `gamma`.";
        assert_eq!(disconnected_voters(&[beta, gamma], 3), two);
    }

    #[test]
    fn a_table_with_some_leaders_can_be_used_in_part() {
        let none = Readiness { outdated_reads: false, reads: false, writes: false, all_replicas: false };
        let outdated = Readiness { outdated_reads: true, ..none };
        assert_eq!(uses(none, false), "cannot be used");
        assert_eq!(uses(outdated, false), "can only be read with `read_mode` \"outdated\"");
        assert!(
            [none, outdated].iter().all(|ready| uses(*ready, true).starts_with("can be used in part only"))
        );
    }

    #[test]
    fn a_table_without_a_leader_is_an_issue_with_any_server_disconnected() {
        let usable = Readiness { outdated_reads: true, reads: true, writes: true, all_replicas: false };
        let unled = Readiness { reads: false, writes: false, ..usable };
        let (none, gone) = (BTreeSet::new(), BTreeSet::from([ServerId(Uuid::from_u128(1))]));
        assert!(has_issue(unled, &none) && has_issue(unled, &gone));
        assert!(has_issue(usable, &gone) && !has_issue(usable, &none));
        assert!(!has_issue(Readiness { all_replicas: true, ..usable }, &none));
    }
}
