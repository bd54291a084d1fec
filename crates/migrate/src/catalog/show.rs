//! The plan as lines and as JSON.

use serde_json::{Value, json};

use super::facts::Grant;
use super::plan::{Plan, TablePlan, UserPlan};
use super::shards::{Placement, Replicas};

/// Lists everything that is copied, then everything that is not, then what to know.
pub fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(plan.databases.iter().map(|db| format!("database {db}: is created")));
    for table in &plan.tables {
        lines.extend(table_lines(table));
    }
    lines.extend(plan.users.iter().filter_map(user_line));
    lines.extend(
        plan.grants
            .iter()
            .map(|grant| format!("permissions of {} on {}: {}", grant.user, scope(grant), grant.permissions)),
    );
    lines.extend(plan.omitted.iter().map(|what| format!("not copied: {what}")));
    lines.extend(plan.notes.iter().map(|note| format!("note: {note}")));
    lines.extend(plan.refusals.iter().map(|refusal| format!("refused: {refusal}")));
    lines
}

/// The same as one object.
pub fn as_json(plan: &Plan) -> Value {
    json!({
        "databases": plan.databases,
        "tables": plan.tables.iter().map(table_json).collect::<Vec<_>>(),
        "users": plan.users.iter().map(user_json).collect::<Vec<_>>(),
        "permissions": plan.grants.iter().map(grant_json).collect::<Vec<_>>(),
        "not_copied": plan.omitted,
        "notes": plan.notes,
        "refused": plan.refusals,
    })
}

fn table_lines(table: &TablePlan) -> Vec<String> {
    let facts = &table.facts;
    let how = match &table.placement {
        None => "exists".to_owned(),
        Some(placement) => format!("is created, {}", spread(placement)),
    };
    let mut lines = vec![format!(
        "table {}: {how}; primary key `{}`, durability {}, write acks {}; about {} rows",
        facts.name, facts.primary_key, facts.durability, facts.write_acks, facts.rows
    )];
    if table.keeps_extra {
        lines.push(
            "  rows of the source replace those with the same key; rows that only the target has stay"
                .to_owned(),
        );
    }
    for index in &table.indexes {
        let flags = [(index.multi, ", multi"), (index.geo, ", geo")];
        let flags: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        lines.push(format!("  index {}{flags}", index.name));
    }
    if facts.hook.is_some() {
        lines.push("  write hook".to_owned());
    }
    lines.extend(table.notes.iter().map(|note| format!("  note: {note}")));
    lines
}

fn spread(placement: &Placement) -> String {
    let replicas = match &placement.replicas {
        Replicas::Anywhere(count) => count.to_string(),
        Replicas::ByTag(counts, _) => {
            let counts = counts.iter().map(|(tag, count)| format!("{count} on {tag}"));
            counts.collect::<Vec<_>>().join(" and ")
        }
    };
    format!("shards {}, replicas {replicas}", placement.shards)
}

fn table_json(table: &TablePlan) -> Value {
    let facts = &table.facts;
    json!({
        "table": facts.name.to_string(),
        "create": table.create_options(),
        "write_acks": facts.write_acks,
        "compression": facts.compression,
        "rows": facts.rows,
        "keeps_extra": table.keeps_extra,
        "indexes": table.indexes.iter().map(|index| &index.name).collect::<Vec<_>>(),
        "write_hook": facts.hook.is_some(),
        "notes": table.notes,
    })
}

fn user_line(user: &UserPlan) -> Option<String> {
    match user {
        UserPlan::Create { name, password: Some(_) } => {
            Some(format!("user {name}: is created with the new password"))
        }
        UserPlan::Create { name, password: None } => {
            Some(format!("user {name}: is created without a password"))
        }
        UserPlan::Exists { name } => Some(format!("user {name}: exists, and keeps its password")),
        // Shown with the omitted things.
        UserPlan::NoPassword { .. } => None,
    }
}

fn user_json(user: &UserPlan) -> Value {
    let (name, action) = match user {
        UserPlan::Create { name, password: Some(_) } => (name, "create_with_new_password"),
        UserPlan::Create { name, password: None } => (name, "create_without_password"),
        UserPlan::Exists { name } => (name, "exists"),
        UserPlan::NoPassword { name } => (name, "no_password_given"),
    };
    json!({"user": name, "action": action})
}

fn grant_json(grant: &Grant) -> Value {
    json!({"user": grant.user, "scope": scope(grant), "permissions": grant.permissions})
}

fn scope(grant: &Grant) -> String {
    match (&grant.db, &grant.table) {
        (None, _) => "everything".to_owned(),
        (Some(db), None) => db.clone(),
        (Some(db), Some(table)) => format!("{db}.{table}"),
    }
}
