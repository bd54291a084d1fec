//! A feed of the first rows of an order.

use datum::{Datum, Object, PrimaryKey};
use reql::{Cancel, EvalError};

use super::element::Element;
use super::entries::RowEntries;
use super::plan::FeedPlan;
use super::view::{Need, RowChange, View};
use super::window::{Exchange, Moved, Place, Window};

/// The first rows, as the client knows them once it has all elements.
pub(super) struct LimitView {
    window: Window,
    with_offsets: bool,
}

impl LimitView {
    /// The first `most` rows of none.
    pub fn new(most: usize, is_descending: bool, with_offsets: bool) -> LimitView {
        LimitView { window: Window::new(most, is_descending), with_offsets }
    }
}

impl View for LimitView {
    fn change(&mut self, change: &RowChange<'_>) -> Result<(), EvalError> {
        let RowChange { cx, plan, key, old, new, .. } = *change;
        for place in places(&plan.entries, key, old, &cx.cancel) {
            self.window.remove(&place);
        }
        let value = plan.steps.value(cx, new.map(|row| Datum::Object(row.clone())))?;
        if let Some(value) = value {
            for place in places(&plan.entries, key, new, &cx.cancel) {
                self.window.insert(place, value.clone());
            }
        }
        Ok(())
    }

    fn begin_refill(&mut self) {
        self.window.begin_refill();
    }

    fn first_rows(&self) -> Option<usize> {
        Some(self.window.size() + self.window.spare_max())
    }

    fn cut_after(&mut self, plan: &FeedPlan, key: &PrimaryKey, row: &Object) {
        match plan.entries.order_value(row) {
            // Further rows with the same value may precede this one.
            Some(value) => self.window.cut_at_value(&value),
            None => self.window.cut_after(&Place { value: Datum::Null, key: key.clone(), nth: u32::MAX }),
        }
    }

    fn needs(&self) -> Need {
        if self.window.needs_more() { Need::AllRows } else { Need::Nothing }
    }

    fn initial(&mut self) -> Result<Vec<Element>, EvalError> {
        self.window.forget_shift();
        let with_offsets = self.with_offsets;
        let element = |(offset, (_, row)): (usize, (PrimaryKey, Datum))| Element::Initial {
            group: None,
            new: Some(row),
            offset: with_offsets.then_some(offset),
        };
        Ok(self.window.rows().into_iter().enumerate().map(element).collect())
    }

    fn elements(&mut self) -> Result<Vec<Element>, EvalError> {
        let with_offsets = self.with_offsets;
        let element = |Exchange { left, entered }: Exchange| {
            let offset = |moved: &Option<Moved>| moved.as_ref().map(|moved| moved.offset);
            let offsets = with_offsets.then(|| (offset(&left), offset(&entered)));
            let row = |moved: Option<Moved>| moved.map(|moved| moved.row);
            Element::Change { group: None, old: row(left), new: row(entered), offsets }
        };
        Ok(self.window.take_exchanges().into_iter().map(element).collect())
    }
}

/// The places of a row in the order.
fn places(entries: &RowEntries, key: &PrimaryKey, row: Option<&Object>, cancel: &Cancel) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for value in entries.values(key, row, cancel) {
        let nth = places.iter().filter(|place| place.value == value).count() as u32;
        places.push(Place { value, key: key.clone(), nth });
    }
    places
}
