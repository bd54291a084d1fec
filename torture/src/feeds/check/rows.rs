//! Checks a feed of rows: each document's changes, one after another, from the beginning of the feed on.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::{Fault, FaultKind, Rest, Versions, refused};
use crate::feeds::model::{Document, Model};
use crate::feeds::view::View;

/// How far a feed has come with one document.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    At(u32),
    /// The document was written while the feed was opened, or the feed does not show which of several writes it is.
    OneOf(Vec<u32>),
}

impl Progress {
    fn between(range: RangeInclusive<u32>) -> Progress {
        Progress::of(range.collect())
    }

    fn of(versions: Vec<u32>) -> Progress {
        match versions[..] {
            [one] => Progress::At(one),
            _ => Progress::OneOf(versions),
        }
    }

    fn versions(&self) -> &[u32] {
        match self {
            Progress::At(version) => std::slice::from_ref(version),
            Progress::OneOf(versions) => versions,
        }
    }
}

/// The state of one feed.
pub(in crate::feeds) struct RowChecker {
    view: View,
    model: Model,
    writers: u32,
    squashes: bool,
    /// By the places of documents. Later documents were written for the first time after the feed was opened.
    documents: Vec<Progress>,
    /// The places of the documents that had an initial value; `None` once all have, or if the feed has none.
    initial: Option<HashSet<usize>>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::feeds) struct RowOptions {
    pub(in crate::feeds) squashes: bool,
    pub(in crate::feeds) include_initial: bool,
}

impl RowChecker {
    /// A feed that was opened after the writes `before` were acknowledged, and before any after `after` had begun.
    pub(in crate::feeds) fn new(
        view: View,
        model: Model,
        writers: u32,
        options: RowOptions,
        (before, after): (&Versions, &Versions),
    ) -> RowChecker {
        let low = |place: usize| before.get(place).copied().unwrap_or(0);
        let start = |(place, high): (usize, &u32)| Progress::between(low(place)..=(*high).max(low(place)));
        RowChecker {
            view,
            model,
            writers,
            squashes: options.squashes,
            documents: after.iter().enumerate().map(start).collect(),
            initial: options.include_initial.then(HashSet::new),
        }
    }

    /// Checks one element; `newest` is the last write of each document that has begun.
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
        match element["state"].as_str() {
            Some("ready") => self.end_initial(),
            Some(_) => Ok(()),
            None if element.get("old_val").is_none() => self.initial_value(element),
            None => self.change(element, newest),
        }
    }

    fn initial_value(&mut self, element: &Value) -> Result<(), Fault> {
        let new = &element["new_val"];
        let document = if new.is_null() { self.view.one() } else { Document::of_row(new) };
        let document = document.ok_or_else(|| wrong(element))?;
        let place = document.place(self.writers);
        let Some(initial) = &mut self.initial else {
            return Err(Fault::new(FaultKind::Repeat, format!("an initial value after the last: {element}")));
        };
        if !initial.insert(place) {
            return Err(Fault::new(FaultKind::Repeat, format!("a second initial value: {element}")));
        }
        self.reach(place);
        let value = Some(new).filter(|new| !new.is_null());
        let fits = |version: &u32| self.view.value(self.model, document, *version).as_ref() == value;
        let fitting: Vec<u32> = self.documents[place].versions().iter().copied().filter(fits).collect();
        if fitting.is_empty() {
            let known = self.documents[place].versions();
            let what = format!("the initial value {new} is not that of the versions {known:?}");
            let resumed = version_of(new).unwrap_or(known[0]);
            self.documents[place] = Progress::At(resumed);
            return Err(Fault::new(FaultKind::Wrong, what));
        }
        self.documents[place] = Progress::of(fitting);
        Ok(())
    }

    /// Documents without an initial value must have had no row.
    fn end_initial(&mut self) -> Result<(), Fault> {
        let Some(initial) = self.initial.take() else { return Ok(()) };
        let mut missing = None;
        for place in (0..self.documents.len()).filter(|place| !initial.contains(place)) {
            let document = Document::at(place, self.writers);
            let known = self.documents[place].versions();
            let is_absent = |version: &u32| self.view.value(self.model, document, *version).is_none();
            let absent: Vec<u32> = known.iter().copied().filter(is_absent).collect();
            match absent.is_empty() {
                true => missing = Some(format!("{} has no initial value, version {known:?}", document.key())),
                false => self.documents[place] = Progress::of(absent),
            }
        }
        missing.map_or(Ok(()), |what| Err(Fault::new(FaultKind::Gap, what)))
    }

    fn change(&mut self, element: &Value, newest: impl Fn(Document) -> u32) -> Result<(), Fault> {
        // Each part of a union has initial values and changes of its own.
        if self.initial.is_some() && !self.view.is_union() {
            let what = format!("a change before all initial values: {element}");
            return Err(Fault::new(FaultKind::Wrong, what));
        }
        let (old, new) = (&element["old_val"], &element["new_val"]);
        let some = if new.is_null() { old } else { new };
        let document = Document::of_row(some).filter(|document| self.view.covers(*document));
        let document = document.ok_or_else(|| wrong(element))?;
        let (place, newest) = (document.place(self.writers), newest(document));
        self.reach(place);
        if self.initial.as_mut().is_some_and(|initial| initial.insert(place)) {
            // Without an initial value it had no row.
            let is_absent = |version: &u32| self.view.value(self.model, document, *version).is_none();
            let known = self.documents[place].versions();
            let absent: Vec<u32> = known.iter().copied().filter(is_absent).collect();
            if !absent.is_empty() {
                self.documents[place] = Progress::of(absent);
            }
        }
        let known = self.documents[place].versions();
        let next = |from: &u32| self.next(document, *from, newest, (old, new));
        let mut reached: Vec<u32> = known.iter().filter_map(next).collect();
        reached.dedup();
        if reached.is_empty() {
            return Err(self.misplaced(document, newest, (old, new)));
        }
        self.documents[place] = Progress::of(reached);
        Ok(())
    }

    /// The fault of a change that does not follow the last one of its document. A later change is the new last one.
    fn misplaced(&mut self, document: Document, newest: u32, change: (&Value, &Value)) -> Fault {
        let (old, new) = change;
        let place = document.place(self.writers);
        let known = self.documents[place].versions();
        let last = known.last().copied().unwrap_or(0);
        let what = format!(
            "after version {known:?} of {} (newest {newest}) came {}",
            document.key(),
            json!({ "old_val": old, "new_val": new })
        );
        let after = version_of(new).or_else(|| version_of(old).map(|version| version + 1));
        let kind = match after {
            Some(version) if version <= last => FaultKind::Repeat,
            Some(version) if version > newest || !self.is(document, version, new) => FaultKind::Wrong,
            _ => FaultKind::Gap,
        };
        if let Some(version) = after.filter(|version| *version > last) {
            self.documents[place] = Progress::At(version);
        }
        Fault::new(kind, what)
    }

    /// The version to which this change leads from `version`. If several fit, the first of them: whatever may follow
    /// another one may follow this one, too.
    fn next(&self, document: Document, version: u32, newest: u32, change: (&Value, &Value)) -> Option<u32> {
        let (old, new) = change;
        let is = |version, expected| self.is(document, version, expected);
        if self.squashes {
            let differs = |to: &u32| !self.view.is_same(self.model, document, version, *to);
            let mut later = (version + 1..=newest).filter(differs);
            return is(version, old).then(|| later.find(|to| is(*to, new))).flatten();
        }
        let next = self.view.next_change(self.model, document, version, newest)?;
        (is(next - 1, old) && is(next, new)).then_some(next)
    }

    /// Whether the feed has this value, or null, of a version.
    fn is(&self, document: Document, version: u32, expected: &Value) -> bool {
        match self.view.value(self.model, document, version) {
            None => expected.is_null(),
            Some(value) => value == *expected,
        }
    }

    /// Whether everything was delivered: folded, the elements are the rows of the table. Continues from there.
    pub(in crate::feeds) fn rest(&mut self, rest: &Rest) -> Result<(), String> {
        if self.initial.is_some() {
            return Err("there are initial values that were not delivered".to_owned());
        }
        if let Some(last) = rest.versions.len().checked_sub(1) {
            self.reach(last);
        }
        for (place, last) in rest.versions.iter().copied().enumerate() {
            if self.documents[place] == Progress::At(last) {
                continue;
            }
            let document = Document::at(place, self.writers);
            let is_last = |version: &u32| match self.squashes {
                true => self.view.is_same(self.model, document, *version, last),
                false => {
                    *version <= last && self.view.next_change(self.model, document, *version, last).is_none()
                }
            };
            let known = self.documents[place].versions();
            if !known.iter().any(is_last) {
                return Err(format!("{} is at version {known:?}, the table at {last}", document.key()));
            }
            // Otherwise a write that was under way when the feed was opened may still be delivered, or be before its beginning.
            if known.iter().all(is_last) {
                self.documents[place] = Progress::At(last);
            }
        }
        Ok(())
    }

    fn reach(&mut self, place: usize) {
        if self.documents.len() <= place {
            self.documents.resize(place + 1, Progress::At(0));
        }
    }
}

fn wrong(element: &Value) -> Fault {
    Fault::new(FaultKind::Wrong, format!("no row of this feed: {element}"))
}

fn version_of(row: &Value) -> Option<u32> {
    row["version"].as_u64().map(|version| version as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model { seed: 5 };
    const WRITERS: u32 = 2;
    const LAST: u32 = 60;

    fn document() -> Document {
        Document { writer: 1, number: 0 }
    }

    fn checker(squashes: bool) -> RowChecker {
        let options = RowOptions { squashes, include_initial: false };
        RowChecker::new(View::table(), MODEL, WRITERS, options, (&vec![], &vec![]))
    }

    /// The change from one version of the document to another.
    fn change(from: u32, to: u32) -> Value {
        let value = |version| View::table().value(MODEL, document(), version);
        json!({ "old_val": value(from), "new_val": value(to) })
    }

    fn changes() -> Vec<Value> {
        (0..LAST).map(|version| change(version, version + 1)).collect()
    }

    fn rest() -> Rest {
        Rest { versions: vec![0, LAST], ordered: Vec::new() }
    }

    /// The first fault of these elements, or of a quiescent point after them.
    fn fault(mut checker: RowChecker, elements: &[Value]) -> Option<FaultKind> {
        let faults = elements.iter().find_map(|element| checker.take(element, |_| LAST).err());
        faults.map(|fault| fault.kind).or_else(|| checker.rest(&rest()).err().map(|_| FaultKind::Fold))
    }

    #[test]
    fn every_change_once_and_in_order_is_right() {
        assert_eq!(fault(checker(false), &changes()), None);
        assert_eq!(fault(checker(true), &changes()), None);
    }

    #[test]
    fn a_change_that_is_dropped_is_found() {
        for dropped in 0..LAST as usize {
            let mut elements = changes();
            elements.remove(dropped);
            let expected = if dropped + 1 == LAST as usize { FaultKind::Fold } else { FaultKind::Gap };
            assert_eq!(fault(checker(false), &elements), Some(expected), "change {dropped}");
        }
    }

    #[test]
    fn a_write_during_the_opening_may_be_delivered_after_a_quiescent_point() {
        let options = RowOptions { squashes: false, include_initial: false };
        let opened = || {
            let (before, after) = (vec![0, LAST - 1], vec![0, LAST]);
            RowChecker::new(View::table(), MODEL, WRITERS, options, (&before, &after))
        };
        let mut checker = opened();
        checker.rest(&rest()).unwrap();
        assert_eq!(fault(checker, &[change(LAST - 1, LAST)]), None);
        assert_eq!(fault(opened(), &[]), None);
        let twice = [change(LAST - 1, LAST), change(LAST - 1, LAST)];
        assert_eq!(fault(opened(), &twice), Some(FaultKind::Repeat));
    }

    #[test]
    fn a_change_that_is_doubled_is_found() {
        for doubled in 0..LAST as usize {
            let mut elements = changes();
            elements.insert(doubled, elements[doubled].clone());
            assert_eq!(fault(checker(false), &elements), Some(FaultKind::Repeat), "change {doubled}");
        }
    }

    #[test]
    fn changes_of_one_document_in_another_order_are_found() {
        for first in 0..LAST as usize - 1 {
            let mut elements = changes();
            elements.swap(first, first + 1);
            assert_eq!(
                fault(checker(false), &elements),
                Some(FaultKind::Gap),
                "changes {first} and the next"
            );
        }
    }

    #[test]
    fn refused_writes_and_writes_that_did_not_begin_are_found() {
        let mut elements = changes();
        elements[3]["new_val"][crate::feeds::check::REFUSED_MARK] = true.into();
        assert_eq!(fault(checker(false), &elements), Some(FaultKind::Refused));
        elements = changes();
        elements[0]["new_val"]["group"] = 1000.into();
        assert_eq!(fault(checker(false), &elements), Some(FaultKind::Wrong));
        let mut checker = checker(false);
        let faults: Vec<_> =
            changes().iter().filter_map(|element| checker.take(element, |_| LAST - 2).err()).collect();
        assert!(faults.iter().all(|fault| fault.kind == FaultKind::Wrong) && !faults.is_empty());
    }

    #[test]
    fn squashed_changes_may_leave_versions_out_but_not_the_last() {
        let deleted = |version: &u32| MODEL.state(document(), *version).is_none();
        let visible = |version: &u32| !deleted(version);
        let steps: Vec<u32> = std::iter::once(0).chain((1..=LAST).step_by(3).filter(visible)).collect();
        let mut elements: Vec<Value> = steps.windows(2).map(|pair| change(pair[0], pair[1])).collect();
        elements.push(change(*steps.last().unwrap(), LAST));
        assert_eq!(fault(checker(true), &elements), None);
        assert_eq!(fault(checker(false), &elements), Some(FaultKind::Gap));
        elements.pop();
        assert_eq!(fault(checker(true), &elements), Some(FaultKind::Fold));
        elements.remove(4);
        assert_eq!(fault(checker(true), &elements), Some(FaultKind::Gap));
    }

    #[test]
    fn initial_values_are_complete_and_not_older_than_the_feed() {
        let version = (7..LAST).find(|version| MODEL.state(document(), *version).is_some()).unwrap();
        let options = RowOptions { squashes: false, include_initial: true };
        let at = vec![0, version];
        let checker = || RowChecker::new(View::table(), MODEL, WRITERS, options, (&at, &at));
        let value = View::table().value(MODEL, document(), version);
        let initial = json!({ "new_val": value });
        let ready = json!({ "state": "ready" });
        let changes: Vec<Value> = (version..LAST).map(|version| change(version, version + 1)).collect();
        let elements =
            |first: &[&Value]| [first.iter().copied().cloned().collect(), changes.clone()].concat();
        assert_eq!(fault(checker(), &elements(&[&initial, &ready])), None);
        assert_eq!(fault(checker(), &elements(&[&ready])), Some(FaultKind::Gap));
        assert_eq!(fault(checker(), &elements(&[&initial, &initial, &ready])), Some(FaultKind::Repeat));
        assert_eq!(fault(checker(), &elements(&[&initial])), Some(FaultKind::Wrong));
        let older = json!({ "new_val": View::table().value(MODEL, document(), 1) });
        assert_eq!(fault(checker(), &elements(&[&older, &ready])), Some(FaultKind::Wrong));
    }
}
