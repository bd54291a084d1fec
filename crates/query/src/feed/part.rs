//! The parts of a feed: one for each sequence of a union, and one otherwise.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use datum::Datum;
use io::task::{self, Condvar};
use parking_lot::Mutex;
use reql::stream::{Endless, Items};
use reql::{Env, EvalError};

use super::element::Element;
use super::options::FeedOptions;
use super::position::ClientPosition;
use super::token::TokenScope;
use crate::context::Cx;

/// How often a thread that waits for a change checks whether its query was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The elements of one sequence.
pub(super) trait FeedPart: Send {
    /// The next element. Waits for it, or fails with [`EvalError::not_ready`] where it must not wait.
    fn next(&mut self) -> Result<Element, EvalError>;

    /// Whether [`FeedPart::next`] takes no long time: it calls no function of the query, or only functions with a known bound.
    fn is_immediate(&self) -> bool;

    /// The position after the last element in each table that the part follows; `None` if no feed can continue there.
    fn positions(&self) -> Option<Vec<&ClientPosition>>;
}

/// The elements of all parts, without end.
pub(super) struct FeedItems {
    cx: Arc<Cx>,
    parts: Vec<Box<dyn FeedPart>>,
    /// The part that is asked next.
    turn: usize,
    options: FeedOptions,
    scope: TokenScope,
    /// The parts that have all initial values; `None` once these are all parts.
    ready: Option<HashSet<usize>>,
    is_initializing: bool,
}

impl FeedItems {
    /// The elements of these parts, of which some have told before that they are ready.
    pub fn new(
        cx: Arc<Cx>,
        parts: Vec<Box<dyn FeedPart>>,
        ready: HashSet<usize>,
        options: FeedOptions,
        scope: TokenScope,
    ) -> FeedItems {
        let ready = Some(ready).filter(|ready| ready.len() < parts.len());
        let is_initializing = options.resume_after.is_some();
        FeedItems { cx, parts, turn: 0, options, scope, ready, is_initializing }
    }

    /// The next element of any part.
    fn next_element(&mut self) -> Result<Element, EvalError> {
        if self.cx.feeds.is_stopped() {
            return Err(EvalError::not_ready());
        }
        loop {
            let (nth, element) = match self.cx.feeds.waker() {
                None => self.wait_for_any()?,
                Some(_) => self.poll_parts()?,
            };
            if let Some(element) = self.of_all_parts(nth, element) {
                return Ok(element);
            }
        }
    }

    /// The next element of the first part that has one.
    fn poll_parts(&mut self) -> Result<(usize, Element), EvalError> {
        let count = self.parts.len();
        let mut failure = EvalError::not_ready();
        for _ in 0..count {
            let nth = self.turn;
            self.turn = (nth + 1) % count;
            match self.parts[nth].next() {
                Err(error) if error.is_not_ready() => failure = error,
                element => return Ok((nth, element?)),
            }
        }
        Err(failure)
    }

    /// As [`FeedItems::poll_parts`], on a thread that may wait.
    fn wait_for_any(&mut self) -> Result<(usize, Element), EvalError> {
        let bell = Arc::new(Bell::default());
        loop {
            self.cx.check_cancel()?;
            self.cx.feeds.set_waker(Some(Waker::from(bell.clone())));
            self.cx.feeds.set_may_block(true);
            let polled = self.poll_parts();
            self.cx.feeds.set_waker(None);
            match polled {
                Err(error) if error.is_not_ready() => bell.wait(CANCEL_CHECK_INTERVAL),
                polled => return polled,
            }
        }
    }

    /// The element of a part as one of the whole feed: a state is passed on once all parts have it. Source: `union_datum_stream_t` of
    /// RethinkDB.
    fn of_all_parts(&mut self, nth: usize, element: Element) -> Option<Element> {
        match element {
            Element::State("ready") => {
                let ready = self.ready.as_mut()?;
                ready.insert(nth);
                if ready.len() < self.parts.len() {
                    return None;
                }
                self.ready = None;
                Some(element)
            }
            Element::State(_) => (!std::mem::replace(&mut self.is_initializing, true)).then_some(element),
            element => Some(element),
        }
    }

    /// The position after the last element as a token.
    fn token(&self) -> Option<String> {
        if !self.options.include_token {
            return None;
        }
        let positions: Option<Vec<Vec<&ClientPosition>>> =
            self.parts.iter().map(|part| part.positions()).collect();
        Some(self.scope.token(positions?.into_iter().flatten()))
    }
}

impl Items for FeedItems {
    fn next(&mut self, _env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        let element = self.next_element()?;
        let token = self.token();
        Ok(Some(element.into_datum(self.options.include_types, token)))
    }

    fn endless(&self) -> Option<Endless> {
        Some(Endless::Changes)
    }

    fn is_immediate(&self) -> bool {
        self.parts.iter().all(|part| part.is_immediate())
    }
}

/// Wakes a thread that waits for any of several queues.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn wait(&self, timeout: Duration) {
        let deadline = task::now() + timeout;
        let mut rung = self.rung.lock();
        if !*rung {
            self.changed.wait_until(&mut rung, deadline);
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }
}
