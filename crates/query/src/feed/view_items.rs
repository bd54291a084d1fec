//! The stream of a feed of a view: a value that is computed from the rows of one sequence, or of the two sides of a join.

use std::collections::{BTreeSet, VecDeque};

use cluster::GroupId;
use datum::{Datum, Object};
use reql::EvalError;

use super::element::Element;
use super::indexed::IndexedRows;
use super::options::Squash;
use super::part::FeedPart;
use super::position::{ClientPosition, InitialPosition};
use super::queue::{Change, Queued, Taken};
use super::reader::FeedReader;
use super::scan::detached;
use super::source::{Source, StartedSource};
use super::view::{Need, RowChange, View};

/// The most entries of the queues that are combined: a queue may be filled as fast as it is emptied.
const COMBINED_MAX: usize = 10_000;

/// The elements of a feed of a view, without end.
pub(super) struct ViewItems {
    view: Box<dyn View>,
    sources: Vec<Source>,
    phase: Phase,
    /// Elements that were not delivered yet, and the position of the client in each source after each; `None` for one after
    /// which no feed can continue.
    waiting: VecDeque<(Element, Option<Vec<ClientPosition>>)>,
    /// Whether the view needs rows.
    is_incomplete: bool,
    /// The source and the group of the change whose elements wait for these rows. `None` if these are the elements of several changes,
    /// which only have one position together.
    awaiting_rows: Option<(usize, GroupId)>,
    /// Whether a feed can continue after the last delivered element.
    is_exact: bool,
    /// The next changes of groups of which an earlier feed, which this one continues, has delivered some elements: the source, the
    /// group and their number.
    partly: Vec<(usize, GroupId, u32)>,
    /// How many of the next elements were delivered by that feed.
    left_out: usize,
    /// Entries that came before one of these changes: they have to wait for it, since its elements depend on the rows before it.
    held: VecDeque<(usize, Taken)>,
    /// The source whose queue is asked first.
    turn: usize,
    /// How many initial values an earlier feed, which this one continues, has delivered; `None` if it had all.
    delivered_before: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was delivered yet; `initializing` comes next.
    Begin,
    /// The rows have to be read.
    Read,
    /// Initial values, then `ready`.
    Ready,
    /// Changes.
    Live,
}

impl ViewItems {
    /// The elements of a feed from the starts of its sources on. There is at least one.
    pub fn new(view: Box<dyn View>, sources: Vec<StartedSource>) -> ViewItems {
        let sources: Vec<Source> = sources.into_iter().map(Source::new).collect();
        let first = sources.first().map(|source| &source.reader);
        let is_fresh = first.is_some_and(|reader| !reader.is_resumed() && reader.options.include_initial);
        let initial = first.and_then(|reader| reader.position.initial.as_ref());
        let delivered_before = initial.map(|initial| initial.elements as usize);
        let partly =
            sources.iter().enumerate().flat_map(|(nth, source)| source.partly_delivered(nth)).collect();
        let phase = if is_fresh { Phase::Begin } else { Phase::Read };
        ViewItems {
            view,
            sources,
            phase,
            waiting: VecDeque::new(),
            is_incomplete: false,
            awaiting_rows: None,
            is_exact: true,
            partly,
            left_out: 0,
            held: VecDeque::new(),
            turn: 0,
            delivered_before,
        }
    }

    /// The first reader: the options and the query are the same for all.
    fn reader(&self) -> Result<&FeedReader, EvalError> {
        let first = self.sources.first().map(|source| &source.reader);
        first.ok_or_else(|| EvalError::internal("a view has no source"))
    }

    /// The next element, and whether a feed can continue after it.
    fn next_element(&mut self) -> Result<(Element, bool), EvalError> {
        let with_states = self.reader()?.options.include_states;
        loop {
            if let Some((element, positions)) = self.waiting.pop_front() {
                let is_exact = positions.is_some();
                if let Some(positions) = positions {
                    self.set_positions(positions);
                }
                return Ok((element, is_exact));
            }
            match self.phase {
                Phase::Begin => {
                    self.phase = Phase::Read;
                    if with_states {
                        return Ok((Element::State("initializing"), true));
                    }
                }
                Phase::Read => self.begin()?,
                Phase::Ready => {
                    self.go_live();
                    if with_states {
                        return Ok((Element::State("ready"), true));
                    }
                }
                Phase::Live => self.follow()?,
            }
        }
    }

    fn set_positions(&mut self, positions: Vec<ClientPosition>) {
        for (source, position) in self.sources.iter_mut().zip(positions) {
            source.reader.position = position;
        }
    }

    /// The positions to which the view has come.
    fn applied(&self) -> Vec<ClientPosition> {
        self.sources.iter().map(|source| source.applied.clone()).collect()
    }

    /// Reads the rows at the start of the feed.
    fn begin(&mut self) -> Result<(), EvalError> {
        let is_resumed = self.reader()?.is_resumed();
        self.fill(true)?;
        let elements = self.view.initial()?;
        match self.delivered_before {
            Some(delivered) => {
                for (nth, element) in elements.into_iter().enumerate().skip(delivered) {
                    let elements = nth as u32 + 1;
                    let initial = Some(InitialPosition { elements, ..InitialPosition::default() });
                    let at = |applied| ClientPosition { initial: initial.clone(), ..applied };
                    let positions = self.applied().into_iter().map(at).collect();
                    self.waiting.push_back((element, Some(positions)));
                }
                self.phase = Phase::Ready;
            }
            None if is_resumed => self.go_live(),
            None => self.phase = Phase::Ready,
        }
        Ok(())
    }

    fn go_live(&mut self) {
        self.sources.iter_mut().for_each(Source::subscribe);
        self.phase = Phase::Live;
    }

    /// Takes entries of the queues, or reads rows that the view needs.
    fn follow(&mut self) -> Result<(), EvalError> {
        if self.is_incomplete {
            return self.refill();
        }
        let (nth, entry) = self.pop()?;
        let change = self.apply(nth, entry)?;
        // Elements of a change that an earlier feed has delivered in part are not mixed with others.
        if self.left_out == 0 && self.reader()?.options.squash != Squash::No {
            self.apply_more()?;
        }
        if self.view.needs() != Need::Nothing {
            self.mark_incomplete();
        }
        match self.is_incomplete {
            true => {
                self.awaiting_rows = change;
                Ok(())
            }
            false => self.deliver(change),
        }
    }

    /// The next entry to apply. If there is none, it fails with [`EvalError::not_ready`].
    fn pop(&mut self) -> Result<(usize, Taken), EvalError> {
        loop {
            if self.partly.is_empty()
                && let Some(held) = self.held.pop_front()
            {
                return Ok(held);
            }
            let (nth, taken) = self.pop_queues()?;
            if self.partly.is_empty() || self.is_partly_delivered(nth, &taken.entry) {
                return Ok((nth, taken));
            }
            if let Queued::Skipped { .. } = taken.entry {
                self.partly.clear();
            }
            self.held.push_back((nth, taken));
        }
    }

    fn is_partly_delivered(&self, nth: usize, entry: &Queued) -> bool {
        let Queued::Change(change) = entry else { return false };
        self.partly.iter().any(|(source, group, _)| (*source, *group) == (nth, change.group))
    }

    fn pop_queues(&mut self) -> Result<(usize, Taken), EvalError> {
        let count = self.sources.len();
        for _ in 0..count {
            let nth = self.turn % count;
            self.turn = nth + 1;
            match self.sources[nth].reader.pop() {
                Err(error) if error.is_not_ready() => {}
                popped => return popped.map(|taken| (nth, taken)),
            }
        }
        Err(EvalError::not_ready())
    }

    /// A further entry, if there is one now. The end of a feed is noticed once its queue is empty.
    fn pop_more(&mut self) -> Option<(usize, Taken)> {
        if !self.partly.is_empty() {
            return None;
        }
        if let Some(held) = self.held.pop_front() {
            return Some(held);
        }
        let count = self.sources.len();
        let (nth, taken) = (self.turn..self.turn + count)
            .find_map(|turn| Some((turn % count, self.sources.get(turn % count)?.reader.pop_now()?)))?;
        self.turn = nth + 1;
        Some((nth, taken))
    }

    /// Applies the entries that are there.
    fn apply_more(&mut self) -> Result<(), EvalError> {
        for _ in 1..COMBINED_MAX {
            let Some((nth, entry)) = self.pop_more() else { break };
            self.apply(nth, entry)?;
        }
        Ok(())
    }

    /// Applies an entry. Returns its source and group if it is a change whose elements have positions of their own.
    fn apply(&mut self, nth: usize, taken: Taken) -> Result<Option<(usize, GroupId)>, EvalError> {
        let Some(source) = self.sources.get_mut(nth) else { return Ok(None) };
        let mut change = None;
        match taken.entry {
            Queued::Change(Change { key, old, new, group, position, .. }) => {
                let (cx, plan) = (&*source.reader.cx, source.reader.plan());
                // The view must not keep the whole log entry of a row that it has.
                let (key, new) = (&detached(&key.0), object(new.as_ref()).map(Object::detach));
                let (old, new) = (object(old.as_ref()), new.as_ref());
                self.view.change(&RowChange { cx, source: nth, plan, key, old, new })?;
                source.applied.advance(group, position);
                let is_partly = |(source, of, _): &(usize, GroupId, u32)| (*source, *of) == (nth, group);
                if let Some(at) = self.partly.iter().position(is_partly) {
                    self.left_out = self.partly.swap_remove(at).2 as usize;
                }
                change = Some((nth, group)).filter(|_| source.reader.options.squash == Squash::No);
            }
            Queued::Moved { from, to } => source.applied.move_to(&from, &to),
            Queued::Skipped { count, positions } => {
                source.applied.advance_all(positions);
                source.is_stale = true;
                self.waiting.push_back((Element::Skipped(count), None));
            }
        }
        source.applied.settle(taken.settled.unwrap_or_default());
        if source.is_stale {
            self.mark_incomplete();
        }
        Ok(change)
    }

    /// Queues the elements for everything that the view has seen: for this change, or for several entries.
    fn deliver(&mut self, change: Option<(usize, GroupId)>) -> Result<(), EvalError> {
        let elements = self.view.elements()?;
        let last = elements.len();
        let before: Option<Vec<_>> =
            change.map(|_| self.sources.iter().map(|source| source.reader.position.clone()).collect());
        for (nth, element) in (1..).zip(elements).skip(std::mem::take(&mut self.left_out)) {
            let positions = match (nth == last, change, &before) {
                (true, ..) => Some(self.applied()),
                (false, Some((source, group)), Some(before)) => {
                    let mut positions = before.clone();
                    if let Some(position) = positions.get_mut(source) {
                        position.set_elements(group, nth as u32);
                    }
                    Some(positions)
                }
                _ => None,
            };
            self.waiting.push_back((element, positions));
        }
        if self.waiting.is_empty() {
            self.set_positions(self.applied());
        }
        Ok(())
    }

    fn mark_incomplete(&mut self) {
        if let (false, Some(source)) = (self.is_incomplete, self.sources.first()) {
            self.is_incomplete = true;
            source.reader.cx.feeds.set_reading();
        }
    }

    /// Reads the rows that the view needs, as they were at its positions. Where the thread must not block, it fails with
    /// [`EvalError::not_ready`].
    fn refill(&mut self) -> Result<(), EvalError> {
        if !self.reader()?.cx.feeds.may_block() {
            return Err(EvalError::not_ready());
        }
        let is_stale = self.sources.iter().any(|source| source.is_stale);
        // Without `squash` each change has its elements, unless some were dropped.
        if self.left_out == 0 && (is_stale || self.reader()?.options.squash != Squash::No) {
            self.apply_more()?;
        }
        self.fill_at_position(is_stale)?;
        let is_stale = self.sources.iter().any(|source| source.is_stale);
        let change = self.awaiting_rows.take().filter(|_| !is_stale);
        self.sources.iter_mut().for_each(|source| source.is_stale = false);
        self.is_incomplete = false;
        self.reader()?.cx.feeds.set_started();
        self.deliver(change)
    }

    /// Reads the rows that the view needs, as they were after what it has taken into account: all of them if it `is_stale`.
    fn fill_at_position(&mut self, is_stale: bool) -> Result<(), EvalError> {
        if self.partly.is_empty() && self.held.is_empty() {
            self.sources.iter_mut().for_each(Source::pass_by);
        }
        self.sources.iter_mut().try_for_each(Source::find_starts)?;
        let is_stale = is_stale || self.sources.iter().any(|source| source.is_stale);
        self.fill(is_stale)
    }

    /// Reads rows, as they were at the position of the view, until it needs no more: all of them if it `is_stale`.
    fn fill(&mut self, is_stale: bool) -> Result<(), EvalError> {
        if (is_stale || self.view.needs() == Need::AllRows) && !self.fill_with_first()? {
            self.view.begin_refill();
            for nth in 0..self.sources.len() {
                if self.view.reads_all_of(nth) {
                    self.read(nth, None)?;
                }
            }
        }
        while self.view.needs() == Need::Keys {
            let wanted: BTreeSet<_> = self.view.take_wanted().into_iter().collect();
            self.read(self.sources.len() - 1, Some(&wanted))?;
        }
        Ok(())
    }

    /// Fills a view of the first rows without reading all rows. Returns false if that is not possible.
    fn fill_with_first(&mut self) -> Result<bool, EvalError> {
        let Some(mut most) = self.view.first_rows() else { return Ok(false) };
        loop {
            let Some(source) = self.sources.first() else { return Ok(false) };
            let Some(IndexedRows { rows, last }) = source.first_rows(most) else { return Ok(false) };
            let (cx, plan) = (&*source.reader.cx, source.reader.plan());
            self.view.begin_refill();
            for (key, row) in &rows {
                self.view.change(&RowChange { cx, source: 0, plan, key, old: None, new: Some(row) })?;
            }
            if let Some((key, row)) = &last {
                self.view.cut_after(plan, key, row);
            }
            if self.view.needs() != Need::AllRows {
                return Ok(true);
            }
            most *= 4;
        }
    }

    /// Gives rows of a source to the view: all, or those under some keys.
    fn read(&mut self, nth: usize, keys: Option<&BTreeSet<datum::PrimaryKey>>) -> Result<(), EvalError> {
        let Some(source) = self.sources.get(nth) else { return Ok(()) };
        let (cx, plan) = (&*source.reader.cx, source.reader.plan());
        source.read(keys, &mut |key, row| {
            self.view.change(&RowChange { cx, source: nth, plan, key, old: None, new: Some(row) })
        })
    }
}

fn object(row: Option<&Datum>) -> Option<&Object> {
    match row {
        Some(Datum::Object(object)) => Some(object),
        _ => None,
    }
}

impl FeedPart for ViewItems {
    fn next(&mut self) -> Result<Element, EvalError> {
        let (element, is_exact) = self.next_element()?;
        self.is_exact = is_exact;
        Ok(element)
    }

    fn is_immediate(&self) -> bool {
        let is_brief = |source: &Source| source.reader.plan().steps.are_brief();
        self.sources.iter().all(is_brief) && !self.view.calls_functions()
    }

    fn positions(&self) -> Option<Vec<&ClientPosition>> {
        self.is_exact.then(|| self.sources.iter().map(|source| &source.reader.position).collect())
    }
}
