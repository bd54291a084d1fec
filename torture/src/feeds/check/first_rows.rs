//! Checks a feed of the first rows of an order: folded, its elements are the first rows of the table.

use serde_json::{Value, json};

use super::{Fault, FaultKind, Rest, refused};
use crate::feeds::model::{Content, Document, Model, row};
use crate::feeds::view::filter_term;

/// The first rows of the table by score.
#[derive(Clone, Debug)]
pub(in crate::feeds) struct FirstRows {
    pub(in crate::feeds) most: usize,
    pub(in crate::feeds) is_descending: bool,
    /// Only rows with a group below this.
    pub(in crate::feeds) below: Option<u32>,
    pub(in crate::feeds) with_offsets: bool,
}

impl FirstRows {
    /// The sequence as a term.
    pub(in crate::feeds) fn term(&self, table: &Value) -> Value {
        let order = if self.is_descending { json!([74, ["score"]]) } else { json!("score") };
        let ordered = json!([41, [table], { "index": order }]);
        let rows = self.below.map_or(ordered.clone(), |below| filter_term(&ordered, below));
        json!([71, [rows, self.most]])
    }

    /// The first rows among all rows, ascending by score and key.
    fn of<'a>(
        &'a self,
        all: &'a [(Document, Content)],
    ) -> Box<dyn Iterator<Item = &'a (Document, Content)> + 'a> {
        let passes =
            |(_, content): &&(Document, Content)| self.below.is_none_or(|below| content.group < below);
        match self.is_descending {
            false => Box::new(all.iter().filter(passes).take(self.most)),
            true => Box::new(all.iter().rev().filter(passes).take(self.most)),
        }
    }
}

/// The rows that a client has.
pub(in crate::feeds) struct FirstRowsChecker {
    followed: FirstRows,
    model: Model,
    rows: Vec<(Document, Content)>,
    is_initial: bool,
}

impl FirstRowsChecker {
    /// A feed that begins with its initial values.
    pub(in crate::feeds) fn new(followed: FirstRows, model: Model) -> FirstRowsChecker {
        FirstRowsChecker { followed, model, rows: Vec::new(), is_initial: true }
    }

    /// Applies one element; `newest` is the last write of each document that has begun.
    pub(in crate::feeds) fn take(
        &mut self,
        element: &Value,
        newest: impl Fn(Document) -> u32,
    ) -> Result<(), Fault> {
        if let Some(fault) = refused(element) {
            return Err(fault);
        }
        if let Some(error) = element.get("error") {
            return Err(Fault::new(FaultKind::Skipped, error.to_string()));
        }
        if let Some(state) = element["state"].as_str() {
            self.is_initial = state != "ready";
            return Ok(());
        }
        let is_initial = element.get("old_val").is_none();
        if is_initial != self.is_initial {
            return Err(Fault::new(FaultKind::Wrong, format!("not expected now: {element}")));
        }
        let new = &element["new_val"];
        let new = match new.is_null() {
            true => None,
            false => Some(self.row(new, newest).ok_or_else(|| wrong(element))?),
        };
        match is_initial {
            true => self.append(element, new.ok_or_else(|| wrong(element))?),
            false => self.change(element, new),
        }
    }

    /// The row with this value, if a write that has begun has made it.
    fn row(&self, value: &Value, newest: impl Fn(Document) -> u32) -> Option<(Document, Content)> {
        let (document, version) = (Document::of_row(value)?, value["version"].as_u64()? as u32);
        let content = self.model.state(document, version).filter(|_| version <= newest(document))?;
        (row(document, &content) == *value).then_some((document, content))
    }

    fn append(&mut self, element: &Value, new: (Document, Content)) -> Result<(), Fault> {
        if self.followed.with_offsets && element["new_offset"] != self.rows.len() {
            return Err(Fault::new(FaultKind::Gap, format!("{} rows, then {element}", self.rows.len())));
        }
        if self.rows.iter().any(|(document, _)| *document == new.0) {
            return Err(Fault::new(FaultKind::Repeat, format!("a second initial value: {element}")));
        }
        self.rows.push(new);
        Ok(())
    }

    fn change(&mut self, element: &Value, new: Option<(Document, Content)>) -> Result<(), Fault> {
        let (followed, count) = (&self.followed, self.rows.len());
        let misplaced = |kind| Fault::new(kind, format!("{element} after {count} rows of {followed:?}"));
        let offset = |name: &str| element[name].as_u64().map(|offset| offset as usize);
        let old = &element["old_val"];
        if !old.is_null() {
            let old = self.row(old, |_| u32::MAX).ok_or_else(|| wrong(element))?;
            let found = match followed.with_offsets {
                true => offset("old_offset").filter(|found| self.rows.get(*found) == Some(&old)),
                false => self.rows.iter().position(|row| *row == old),
            };
            self.rows.remove(found.ok_or_else(|| misplaced(FaultKind::Gap))?);
        }
        let Some(new) = new else { return Ok(()) };
        if self.rows.iter().any(|(document, _)| *document == new.0) {
            return Err(misplaced(FaultKind::Repeat));
        }
        let at = match followed.with_offsets {
            true => offset("new_offset"),
            false => Some(self.rows.len()),
        };
        let fits = |at: &usize| *at <= self.rows.len() && self.rows.len() < followed.most;
        self.rows.insert(at.filter(fits).ok_or_else(|| misplaced(FaultKind::Wrong))?, new);
        Ok(())
    }

    /// Whether the rows are the first ones of the table.
    pub(in crate::feeds) fn rest(&self, rest: &Rest) -> Result<(), String> {
        if self.is_initial {
            return Err("there are initial values that were not delivered".to_owned());
        }
        let mut expected: Vec<(Document, Content)> = self.followed.of(&rest.ordered).copied().collect();
        let mut rows = self.rows.clone();
        if !self.followed.with_offsets {
            expected.sort_by_key(|(document, _)| *document);
            rows.sort_by_key(|(document, _)| *document);
        }
        if rows == expected {
            return Ok(());
        }
        let at = (0..).find(|at| rows.get(*at) != expected.get(*at)).unwrap_or(0);
        Err(format!(
            "row {at} of {:?} is {:?}, in the table {:?}",
            self.followed,
            rows.get(at),
            expected.get(at)
        ))
    }
}

fn wrong(element: &Value) -> Fault {
    Fault::new(FaultKind::Wrong, format!("no row of this feed: {element}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model { seed: 3 };

    /// Documents with a row after their first write, ascending by score and key.
    fn ordered(count: u32) -> Vec<(Document, Content)> {
        let one = |number| {
            let document = Document { writer: 0, number };
            MODEL.state(document, 1).map(|content| (document, content))
        };
        let mut all: Vec<_> = (0..count).filter_map(one).collect();
        all.sort_by_key(|(document, content)| (content.score, *document));
        all
    }

    fn rest(ordered: Vec<(Document, Content)>) -> Rest {
        Rest { versions: Vec::new(), ordered }
    }

    fn checker(with_offsets: bool, all: &[(Document, Content)]) -> FirstRowsChecker {
        let followed = FirstRows { most: 5, is_descending: false, below: None, with_offsets };
        let mut checker = FirstRowsChecker::new(followed, MODEL);
        for (at, (document, content)) in all.iter().take(5).enumerate() {
            let mut element = json!({ "new_val": row(*document, content) });
            if with_offsets {
                element["new_offset"] = at.into();
            }
            checker.take(&element, |_| 1).unwrap();
        }
        checker.take(&json!({ "state": "ready" }), |_| 1).unwrap();
        checker
    }

    /// The second row leaves, and the sixth joins.
    fn replacement(all: &[(Document, Content)]) -> Value {
        let value = |at: usize| row(all[at].0, &all[at].1);
        json!({ "old_val": value(1), "new_val": value(5), "old_offset": 1, "new_offset": 4 })
    }

    #[test]
    fn folded_elements_are_the_first_rows() {
        for with_offsets in [true, false] {
            let mut all = ordered(200);
            let mut checker = checker(with_offsets, &all);
            checker.rest(&rest(all.clone())).unwrap();
            checker.take(&replacement(&all), |_| 1).unwrap();
            checker.rest(&rest(all.clone())).unwrap_err();
            all.remove(1);
            checker.rest(&rest(all)).unwrap();
        }
    }

    #[test]
    fn elements_that_are_dropped_doubled_or_misplaced_are_found() {
        let all = ordered(200);
        let mut after = all.clone();
        after.remove(1);
        checker(true, &all).rest(&rest(after.clone())).unwrap_err();
        let mut twice = checker(true, &all);
        twice.take(&replacement(&all), |_| 1).unwrap();
        assert_eq!(twice.take(&replacement(&all), |_| 1).unwrap_err().kind, FaultKind::Gap);
        for (field, offset) in [("old_offset", 2), ("new_offset", 3)] {
            let mut element = replacement(&all);
            element[field] = offset.into();
            let mut checker = checker(true, &all);
            let is_found =
                checker.take(&element, |_| 1).is_err() || checker.rest(&rest(after.clone())).is_err();
            assert!(is_found, "{field}");
        }
        let mut early = replacement(&all);
        early["new_val"]["version"] = 2.into();
        assert_eq!(checker(true, &all).take(&early, |_| 1).unwrap_err().kind, FaultKind::Wrong);
    }
}
