//! The stream of a feed of rows.

use std::collections::{BTreeMap, VecDeque};

use cluster::{FeedStart, InitialRows};
use datum::{Datum, Object, PrimaryKey};
use reql::EvalError;

use super::element::Element;
use super::indexed;
use super::options::Squash;
use super::part::FeedPart;
use super::position::{ClientPosition, InitialPosition};
use super::queue::{Change, Queued, Taken};
use super::reader::FeedReader;
use super::scan::scan;
use crate::service::FeedKind;

/// The elements of a feed of rows, without end.
pub(super) struct RowItems {
    reader: FeedReader,
    starts: Vec<FeedStart>,
    /// All rows of the sequence at the starts, if these were read by its index. `None` until initial values are read.
    indexed: Option<Option<BTreeMap<PrimaryKey, Object>>>,
    phase: Phase,
    /// Initial values that were read, each with its key.
    initial: VecDeque<(PrimaryKey, Element)>,
    /// How far initial values were read, and how many elements after that were delivered by the feed that this one continues.
    scan: InitialPosition,
    /// Elements whose steps the reader applies, and whether the last one is the last of its flush. Until this is known it waits: its
    /// token depends on whether the steps leave something of a later change.
    late: (VecDeque<Element>, bool),
    /// Whether a feed can continue after the last element.
    is_exact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was delivered yet; `initializing` comes next.
    Begin,
    /// Initial values.
    Initial,
    /// `ready` comes next.
    Ready,
    /// Changes.
    Live,
}

impl RowItems {
    /// The elements of a feed from these positions on.
    pub fn new(reader: FeedReader, starts: Vec<FeedStart>) -> RowItems {
        let phase = match (reader.is_resumed(), reader.position.initial.is_some()) {
            (false, true) => Phase::Begin,
            (true, true) => Phase::Initial,
            (false, false) => Phase::Ready,
            (true, false) => Phase::Live,
        };
        let scan = reader.position.initial.clone().unwrap_or_default();
        let (initial, late) = (VecDeque::new(), (VecDeque::new(), true));
        let mut items =
            RowItems { reader, starts, indexed: None, phase, initial, scan, late, is_exact: true };
        if matches!(phase, Phase::Ready | Phase::Live) {
            items.subscribe();
        }
        items
    }

    fn subscribe(&mut self) {
        self.indexed = None;
        self.reader.subscribe(std::mem::take(&mut self.starts));
    }

    /// The next element, with the position after it.
    fn next_element(&mut self) -> Result<Element, EvalError> {
        let with_states = self.reader.options.include_states;
        loop {
            match self.phase {
                Phase::Begin => {
                    self.phase = Phase::Initial;
                    if with_states {
                        return Ok(Element::State("initializing"));
                    }
                }
                Phase::Initial => match self.next_initial()? {
                    Some(element) => return Ok(element),
                    None => {
                        self.reader.position.initial = None;
                        self.phase = Phase::Ready;
                        self.subscribe();
                    }
                },
                Phase::Ready => {
                    self.phase = Phase::Live;
                    if with_states {
                        return Ok(Element::State("ready"));
                    }
                }
                Phase::Live => {
                    if let Some(element) = self.next_change()? {
                        return Ok(element);
                    }
                }
            }
        }
    }

    fn next_initial(&mut self) -> Result<Option<Element>, EvalError> {
        loop {
            if let Some((key, element)) = self.initial.pop_front() {
                if let Some(position) = &mut self.reader.position.initial {
                    match self.initial.front() {
                        Some((next, _)) if *next == key => position.elements += 1,
                        _ => (position.after, position.elements) = (Some(key), 0),
                    }
                }
                return Ok(Some(element));
            }
            // Everything up to where the reader is was delivered, or is no part of the feed.
            self.reader.position.initial = Some(self.scan.clone());
            if !self.read_initial()? {
                return Ok(None);
            }
        }
    }

    /// Reads the next initial values. Returns false at the end.
    fn read_initial(&mut self) -> Result<bool, EvalError> {
        let InitialPosition { group, after, elements: delivered } = &mut self.scan;
        let Some(start) = self.starts.get(*group) else { return Ok(false) };
        let (cx, plan) = (&self.reader.cx, self.reader.plan());
        let InitialRows { rows, reach } =
            match self.indexed.get_or_insert_with(|| indexed::all(cx, plan, &self.starts)) {
                Some(all) => rows_of(all, start, after.as_ref()),
                None => scan(cx, &plan.interest, plan.table.handle.config.id, start, after.as_ref())?,
            };
        for (key, row) in rows {
            let value = plan.steps.value(cx, row.clone().map(Datum::Object))?;
            let element = Element::initial(value);
            let times = match (plan.kind, element.has_value()) {
                (FeedKind::Point, _) => 1,
                (_, false) => 0,
                (_, true) => plan.entries.times(&key, row.as_ref(), &cx.cancel),
            };
            for _ in 0..times {
                match delivered.checked_sub(1) {
                    Some(fewer) => *delivered = fewer,
                    None => self.initial.push_back((key.clone(), element.clone())),
                }
            }
        }
        match reach {
            None => (*group, *after) = (*group + 1, None),
            reach => *after = reach,
        }
        Ok(true)
    }

    /// An entry of the queue with the steps applied, if they were not before.
    fn after_steps(&self, entry: Queued) -> Result<Queued, EvalError> {
        let plan = self.reader.plan();
        match entry {
            Queued::Change(change) if !plan.steps.are_bounded() => {
                let value = |row| plan.steps.value(&self.reader.cx, row);
                let (old, new) = (value(change.old)?, value(change.new)?);
                Ok(Queued::Change(Change { old, new, ..change }))
            }
            entry => Ok(entry),
        }
    }

    /// The next change; `None` if something else was in the queue, or a change of which the steps leave nothing.
    fn next_change(&mut self) -> Result<Option<Element>, EvalError> {
        let options = &self.reader.options;
        let has_late_steps = !self.reader.plan().steps.are_bounded();
        if !has_late_steps || !options.include_token || options.squash == Squash::No {
            return self.take_change();
        }
        if let Some(element) = self.next_late() {
            return Ok(Some(element));
        }
        let element = self.take_change()?;
        self.late.0.extend(element);
        self.late.1 = self.is_exact;
        Ok(self.next_late())
    }

    /// The next of the late elements that need not wait.
    fn next_late(&mut self) -> Option<Element> {
        let (waiting, is_last) = &mut self.late;
        let element = if waiting.len() > 1 || *is_last { waiting.pop_front() } else { None };
        self.is_exact = *is_last && waiting.is_empty();
        element
    }

    /// Takes the next entry of the queue, as [`RowItems::next_change`].
    fn take_change(&mut self) -> Result<Option<Element>, EvalError> {
        let Taken { entry, settled } = self.reader.pop()?;
        let entry = self.after_steps(entry)?;
        let has_late_steps = !self.reader.plan().steps.are_bounded();
        let position = &mut self.reader.position;
        let element = match entry {
            Queued::Change(Change { old, new, group, position: after, .. }) => {
                position.advance(group, after);
                (!has_late_steps || old != new).then(|| Element::change(old, new))
            }
            Queued::Moved { from, to } => {
                position.move_to(&from, &to);
                None
            }
            Queued::Skipped { count, positions } => {
                position.advance_all(positions);
                Some(Element::Skipped(count))
            }
        };
        // With `squash` later versions of rows overtake earlier ones of others.
        self.is_exact = self.reader.options.squash == Squash::No || settled.is_some();
        position.settle(settled.unwrap_or_default());
        Ok(element)
    }
}

/// The rows of `all` in the range of `start`, after the key `after`.
fn rows_of(all: &BTreeMap<PrimaryKey, Object>, start: &FeedStart, after: Option<&PrimaryKey>) -> InitialRows {
    let is_wanted = |key: &PrimaryKey| start.range.contains(key) && after.is_none_or(|after| key > after);
    let wanted = all.iter().filter(|(key, _)| is_wanted(key));
    InitialRows { rows: wanted.map(|(key, row)| (key.clone(), Some(row.clone()))).collect(), reach: None }
}

impl FeedPart for RowItems {
    fn next(&mut self) -> Result<Element, EvalError> {
        self.next_element()
    }

    fn is_immediate(&self) -> bool {
        self.reader.plan().steps.are_bounded()
    }

    fn positions(&self) -> Option<Vec<&ClientPosition>> {
        self.is_exact.then(|| vec![&self.reader.position])
    }
}
