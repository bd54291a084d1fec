//! One feed: its query, its elements, and the token with which it continues.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::check::{
    Fault, FirstRows, FirstRowsChecker, REFUSED_MARK, Rest, RowChecker, RowOptions, Versions,
};
use super::options::Mutant;
use super::shared::{Shared, table};
use super::trace::Trace;
use super::view::View;

/// One element in this many is falsified by a mutant.
const MUTANT_ONE_IN: u32 = 3000;

/// The followed sequence.
#[derive(Clone, Debug)]
enum Subject {
    Rows(View),
    FirstRows(FirstRows),
}

/// A feed, on one connection after another.
pub(super) struct Feed {
    subject: Subject,
    include_initial: bool,
    include_states: bool,
    squash: Value,
    with_token: bool,
    checker: Option<Checker>,
    token: Option<Value>,
    /// Elements after the last one with a token: a feed that is resumed delivers them again.
    pending: Vec<Value>,
    /// The element that a mutant delivers later.
    late: Option<Value>,
    random: StdRng,
    trace: Trace,
}

enum Checker {
    Rows(RowChecker),
    FirstRows(FirstRowsChecker),
}

impl Feed {
    /// A feed of a random kind with random options.
    pub(super) fn random(shared: &Shared, mut random: StdRng) -> Feed {
        let (writers, numbers) = (shared.writes.writers, shared.writes.numbers());
        let subject = match random.random_ratio(1, 6) {
            true => Subject::FirstRows(FirstRows {
                most: [1, 10, 100][random.random_range(0..3)],
                is_descending: random.random(),
                below: random.random_ratio(1, 3).then_some(10),
                with_offsets: random.random_ratio(3, 4),
            }),
            false => Subject::Rows(View::random(writers, numbers, &mut random)),
        };
        let squash = match random.random_range(0..10) {
            0..6 => false.into(),
            6..9 => true.into(),
            _ => json!(0.2),
        };
        // Without states a client does not see the end of the initial values.
        let include_initial = matches!(subject, Subject::FirstRows(_)) || random.random();
        Feed {
            subject,
            include_initial,
            include_states: include_initial || random.random(),
            squash,
            with_token: random.random_ratio(5, 6),
            checker: None,
            token: None,
            pending: Vec::new(),
            late: None,
            random,
            trace: Trace::default(),
        }
    }

    /// A feed of the whole table that is never squashed.
    pub(super) fn of_table(random: StdRng) -> Feed {
        Feed {
            subject: Subject::Rows(View::table()),
            include_initial: true,
            include_states: true,
            squash: false.into(),
            with_token: true,
            checker: None,
            token: None,
            pending: Vec::new(),
            late: None,
            random,
            trace: Trace::default(),
        }
    }

    /// The query that opens or resumes it.
    pub(super) fn query(&self) -> String {
        let mut options = json!({ "squash": self.squash, "include_states": self.include_states });
        options["include_resume_token"] = self.with_token.into();
        let sequence = match &self.subject {
            Subject::Rows(view) => view.term(&table()),
            Subject::FirstRows(first) => {
                options["include_offsets"] = first.with_offsets.into();
                first.term(&table())
            }
        };
        match &self.token {
            Some(token) => options["resume_after"] = token.clone(),
            None => options["include_initial"] = self.include_initial.into(),
        }
        json!([1, [152, [sequence], options]]).to_string()
    }

    pub(super) fn is_resumable(&self) -> bool {
        self.token.is_some()
    }

    /// The server has opened the feed, after the writes `before` were acknowledged.
    pub(super) fn opened(&mut self, shared: &Shared, before: &Versions, node: usize) {
        let how = if self.is_resumable() { "resumed" } else { "opened" };
        self.trace.note(format!("{how} through n{node}"));
        if self.is_resumable() {
            return;
        }
        let (model, writers) = (shared.writes.model, shared.writes.writers);
        self.checker = Some(match &self.subject {
            Subject::FirstRows(first) => Checker::FirstRows(FirstRowsChecker::new(first.clone(), model)),
            Subject::Rows(view) => {
                let squashes = self.squash != false;
                let options = RowOptions { squashes, include_initial: self.include_initial };
                let after = shared.writes.all_newest();
                Checker::Rows(RowChecker::new(view.clone(), model, writers, options, (before, &after)))
            }
        });
    }

    /// The connection is lost. A resumed feed delivers the elements after the last token again.
    pub(super) fn lost(&mut self) {
        self.pending.clear();
        self.late = None;
        if !self.is_resumable() {
            self.checker = None;
        }
    }

    /// Forgets its position: it begins anew.
    pub(super) fn begin_anew(&mut self) {
        self.token = None;
        self.lost();
    }

    /// Checks elements that were delivered.
    pub(super) fn take(&mut self, shared: &Shared, elements: Vec<Value>) -> Vec<Fault> {
        let mut faults = Vec::new();
        for mut element in elements {
            let token = element.as_object_mut().and_then(|element| element.remove("resume_token"));
            self.trace.element(&element, token.is_some());
            let keeps_token = shared.mutant == Some(Mutant::Token) && self.random.random_ratio(1, 2);
            for element in self.falsified(shared.mutant, element) {
                self.pending.push(element);
            }
            if token.is_some() || !self.with_token {
                for element in std::mem::take(&mut self.pending) {
                    let Err(mut fault) = self.check(shared, &element) else { continue };
                    fault.what.push_str(&self.trace.about(&element));
                    faults.push(fault);
                    if !self.continues_after_faults() {
                        return faults;
                    }
                }
                self.token = if keeps_token { self.token.take().or(token) } else { token };
            }
        }
        faults
    }

    /// Whether later elements can be checked after a fault.
    pub(super) fn continues_after_faults(&self) -> bool {
        matches!(self.subject, Subject::Rows(_))
    }

    fn check(&mut self, shared: &Shared, element: &Value) -> Result<(), Fault> {
        shared.tally.count(|tally| &tally.elements);
        let newest = |document| shared.writes.newest(document);
        match &mut self.checker {
            Some(Checker::Rows(rows)) => rows.take(element, newest),
            Some(Checker::FirstRows(first)) => first.take(element, newest),
            None => Ok(()),
        }
    }

    /// The elements that a mutant puts in the place of one.
    fn falsified(&mut self, mutant: Option<Mutant>, mut element: Value) -> Vec<Value> {
        let is_change = element.get("old_val").is_some();
        let mut elements: Vec<Value> = self.late.take().into_iter().collect();
        if !is_change || mutant.is_none() || !self.random.random_ratio(1, MUTANT_ONE_IN) {
            elements.insert(0, element);
            return elements;
        }
        match mutant {
            Some(Mutant::Drop) => {}
            Some(Mutant::Repeat) => elements.extend([element.clone(), element]),
            Some(Mutant::Swap) => self.late = Some(element),
            Some(Mutant::Refused) => {
                element["new_val"] = json!({ "id": "00-000000", REFUSED_MARK: true });
                elements.push(element);
            }
            Some(Mutant::Token) | None => elements.push(element),
        }
        elements
    }

    /// Whether the feed has led to the rows of the table.
    pub(super) fn rest(&mut self, rest: &Rest) -> Result<(), String> {
        let result = match &mut self.checker {
            _ if !self.pending.is_empty() => Err("the last element has no token".to_owned()),
            Some(Checker::Rows(rows)) => rows.rest(rest),
            Some(Checker::FirstRows(first)) => first.rest(rest),
            None => Err("it is not open".to_owned()),
        };
        result.map_err(|why| format!("{why}; {}", self.description()))
    }

    /// For messages.
    pub(super) fn description(&self) -> String {
        let Feed { subject, include_initial, squash, with_token, .. } = self;
        format!("{subject:?}, initial {include_initial}, squash {squash}, token {with_token}")
    }
}
