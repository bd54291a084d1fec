//! The differences between two ordered lists of rows. Pure.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::key::Key;
use crate::row::{canonical, first_difference};

/// A row that is not the same on both sides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub key: Key,
    pub kind: DifferenceKind,
}

/// With the rows as they came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DifferenceKind {
    /// Only the source has it.
    Missing {
        source: String,
    },
    /// Only the target has it.
    Extra {
        target: String,
    },
    Differs {
        source: String,
        target: String,
    },
}

impl Difference {
    /// The row of the source.
    pub fn source(&self) -> Option<&str> {
        match &self.kind {
            DifferenceKind::Missing { source } | DifferenceKind::Differs { source, .. } => Some(source),
            DifferenceKind::Extra { .. } => None,
        }
    }

    /// The row of the target.
    pub fn target(&self) -> Option<&str> {
        match &self.kind {
            DifferenceKind::Extra { target } | DifferenceKind::Differs { target, .. } => Some(target),
            DifferenceKind::Missing { .. } => None,
        }
    }

    /// One object, for `--json`.
    pub fn as_json(&self) -> Value {
        let kind = match &self.kind {
            DifferenceKind::Missing { .. } => "missing",
            DifferenceKind::Extra { .. } => "extra",
            DifferenceKind::Differs { .. } => "differs",
        };
        json!({"key": self.key.to_json(), "kind": kind, "what": self.to_string()})
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            DifferenceKind::Missing { .. } => write!(f, "row {}: missing in the target", self.key),
            DifferenceKind::Extra { .. } => write!(f, "row {}: only in the target", self.key),
            DifferenceKind::Differs { source, target } => {
                write!(f, "row {}: {}", self.key, first_difference(source, target))
            }
        }
    }
}

/// Compares rows in the order of their keys.
pub fn merge(source: Vec<(Key, String)>, target: Vec<(Key, String)>) -> Vec<Difference> {
    let mut differences = Vec::new();
    let (mut source, mut target) = (source.into_iter().peekable(), target.into_iter().peekable());
    loop {
        let order = match (source.peek(), target.peek()) {
            (None, None) => return differences,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let from_source = (order != Ordering::Greater).then(|| source.next()).flatten();
        let from_target = (order != Ordering::Less).then(|| target.next()).flatten();
        differences.extend(difference(from_source, from_target));
    }
}

/// The difference of two rows with one key.
fn difference(source: Option<(Key, String)>, target: Option<(Key, String)>) -> Option<Difference> {
    match (source, target) {
        (Some((key, source)), None) => Some(Difference { key, kind: DifferenceKind::Missing { source } }),
        (None, Some((key, target))) => Some(Difference { key, kind: DifferenceKind::Extra { target } }),
        (Some((key, source)), Some((_, target))) => {
            let differs = source != target && canonical(&source) != canonical(&target);
            differs.then_some(Difference { key, kind: DifferenceKind::Differs { source, target } })
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&str]) -> Vec<(Key, String)> {
        rows.iter().map(|row| (crate::row::key_of(row, "id").unwrap(), (*row).to_owned())).collect()
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let source = rows(&[
            r#"{"id":1,"n":1}"#,
            r#"{"id":2,"n":0.1}"#,
            r#"{"id":3}"#,
            r#"{"a":1,"id":5}"#,
            r#"{"id":6,"t":{"$reql_type$":"TIME","epoch_time":5,"timezone":"+00:00"}}"#,
        ]);
        let target = rows(&[
            r#"{"id":1,"n":1}"#,
            r#"{"id":2,"n":0.10000000000000002}"#,
            r#"{"id":4}"#,
            r#"{"id":5,"a":1}"#,
            r#"{"id":6,"t":{"$reql_type$":"TIME","epoch_time":5,"timezone":"+01:00"}}"#,
        ]);
        let said: Vec<String> = merge(source, target).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "row 2: `n` is 0.1 in the source and 0.10000000000000002 in the target",
                "row 3: missing in the target",
                "row 4: only in the target",
                "row 6: `t.timezone` is \"+00:00\" in the source and \"+01:00\" in the target",
            ]
        );
    }

    #[test]
    fn equal_sides_have_no_difference() {
        let source = rows(&[r#"{"id":1}"#, r#"{"id":"a"}"#]);
        assert_eq!(merge(source.clone(), source), []);
        assert_eq!(merge(Vec::new(), Vec::new()), []);
    }
}
