//! The stream of a feed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cluster::{FeedStart, Subscription};
use datum::{Datum, PrimaryKey};
use io::task;
use reql::stream::Items;
use reql::{Env, EvalError};

use super::element::Element;
use super::options::{FeedOptions, Squash};
use super::plan::FeedPlan;
use super::position::ClientPosition;
use super::queue::{Change, FeedQueue, Queued};
use super::token::{self, TokenScope};
use crate::context::Cx;
use crate::service::FeedKind;
use crate::table::{TableRef, access};

/// How often a thread that waits for a change checks whether its query was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The elements of a feed, without end.
pub(crate) struct FeedItems {
    cx: Arc<Cx>,
    options: FeedOptions,
    queue: Arc<FeedQueue>,
    scope: TokenScope,
    starts: Vec<FeedStart>,
    phase: Phase,
    position: ClientPosition,
    /// Initial values that were read, each with its key.
    initial: VecDeque<(PrimaryKey, Element)>,
    /// How far initial values were read: a group, and a key in it.
    scan: (usize, Option<PrimaryKey>),
    subscription: Option<Arc<Subscription>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was delivered yet; `initializing` comes next if there are initial values.
    Begin,
    /// Initial values.
    Initial,
    /// `ready` comes next.
    Ready,
    /// Changes.
    Live,
}

impl FeedItems {
    /// Begins a feed. Fails if the caller may not read the table, if no leader can be reached, or if the token of the options
    /// cannot be used.
    pub fn open(cx: &Cx, plan: FeedPlan, options: FeedOptions) -> Result<FeedItems, EvalError> {
        access::check_stream_read(cx, &TableRef::Stored(plan.table.clone()))?;
        let node = cx.node();
        let scope = TokenScope {
            cluster: node.identity().cluster,
            table: plan.table.handle.config.id.uuid(),
            digest: plan.digest(&options)?,
        };
        let resumed = options.resume_after.as_deref().map(|token| scope.position(token)).transpose()?;
        let starts = match &resumed {
            None => plan.start(node.feeds())?,
            Some(position) => {
                plan.start(node.feeds())?;
                let handle = &plan.table.handle;
                let starts = node.feeds().resume(handle, &plan.interest, &position.groups);
                starts.ok_or_else(token::gone)?
            }
        };
        let has_initial = options.include_initial;
        let phase = match &resumed {
            None if has_initial => Phase::Begin,
            Some(position) if position.initial.is_some() => Phase::Initial,
            None => Phase::Ready,
            Some(_) => Phase::Live,
        };
        let fresh = || ClientPosition {
            groups: starts.iter().map(|start| (start.group, start.position)).collect(),
            initial: has_initial.then_some((0, None)),
        };
        cx.feeds.add(plan.kind, options.include_states);
        let cx = cx.shared()?;
        let queue = Arc::new(FeedQueue::new(cx.clone(), plan, options.squash, options.queue_max));
        let mut items = FeedItems {
            cx,
            options,
            queue,
            scope,
            scan: resumed.as_ref().and_then(|position| position.initial.clone()).unwrap_or_default(),
            position: resumed.unwrap_or_else(fresh),
            starts,
            phase,
            initial: VecDeque::new(),
            subscription: None,
        };
        if matches!(phase, Phase::Ready | Phase::Live) {
            items.subscribe();
        }
        Ok(items)
    }

    /// Begins to receive changes, from the positions of the start.
    fn subscribe(&mut self) {
        let plan = &self.queue.plan;
        let starts = std::mem::take(&mut self.starts);
        let (table, interest) = (plan.table.handle.config.id, plan.interest.clone());
        let feeds = self.cx.node().feeds();
        self.subscription = Some(feeds.subscribe(table, interest, starts, self.queue.clone()));
        self.cx.feeds.set_started();
    }

    /// The next element, with the position after it.
    fn next_element(&mut self) -> Result<Element, EvalError> {
        loop {
            match self.phase {
                Phase::Begin => {
                    self.phase = Phase::Initial;
                    if self.options.include_states {
                        return Ok(Element::State("initializing"));
                    }
                }
                Phase::Initial => match self.next_initial()? {
                    Some(element) => return Ok(element),
                    None => {
                        self.position.initial = None;
                        self.phase = Phase::Ready;
                        self.subscribe();
                    }
                },
                Phase::Ready => {
                    self.phase = Phase::Live;
                    if self.options.include_states {
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
                if let Some((_, after)) = &mut self.position.initial {
                    *after = Some(key);
                }
                return Ok(Some(element));
            }
            // Everything up to where the reader is was delivered, or is no part of the feed.
            self.position.initial = Some(self.scan.clone());
            let (nth, after) = self.scan.clone();
            let Some(start) = self.starts.get(nth).cloned() else { return Ok(None) };
            self.cx.check_cancel()?;
            let reach = self.read_initial(&start, after.as_ref())?;
            self.scan = if reach.is_some() { (nth, reach) } else { (nth + 1, None) };
        }
    }

    /// Reads the next initial values of a group. Returns the key that they reach to, or `None` for the end.
    fn read_initial(
        &mut self,
        start: &FeedStart,
        after: Option<&PrimaryKey>,
    ) -> Result<Option<PrimaryKey>, EvalError> {
        let plan = &self.queue.plan;
        let feeds = self.cx.node().feeds();
        let read = feeds.initial_rows(&plan.table.handle, &plan.interest, start, after).map_err(|why| {
            EvalError::op_failed(format!("The initial values of a changefeed cannot be read: {why}"))
        })?;
        let is_point = plan.kind == FeedKind::Point;
        for (key, row) in read.rows {
            let value = plan.steps.value(&self.cx, row.map(Datum::Object));
            if value.is_some() || is_point {
                self.initial.push_back((key, Element::Initial(value)));
            }
        }
        Ok(read.reach)
    }

    /// The next change; `None` if something else was in the queue.
    fn next_change(&mut self) -> Result<Option<Element>, EvalError> {
        let waker = self.cx.feeds.waker();
        match self.queue.pop(waker.as_ref())? {
            Some(Queued::Change(Change { old, new, group, position, .. })) => {
                self.position.advance(group, position);
                self.read_on();
                Ok(Some(Element::Change { old, new }))
            }
            Some(Queued::Moved { from, to }) => {
                self.position.move_to(&from, &to);
                Ok(None)
            }
            Some(Queued::Skipped { count, positions }) => {
                positions.into_iter().for_each(|(group, position)| self.position.advance(group, position));
                Ok(Some(Element::Skipped(count)))
            }
            None if waker.is_some() => Err(EvalError::not_ready()),
            None => {
                self.cx.check_cancel()?;
                self.queue.wait(task::now() + CANCEL_CHECK_INTERVAL);
                Ok(None)
            }
        }
    }

    /// Lets a feed that is behind be read further, once the queue is empty.
    fn read_on(&self) {
        if self.queue.is_empty() {
            self.cx.node().feeds().continue_reading();
        }
    }

    /// The token of the last delivered element. With `squash` later versions of rows overtake earlier ones of others, so
    /// that only the last element of each flush has one.
    fn token(&mut self) -> Option<String> {
        let is_exact = self.options.squash == Squash::No || self.queue.is_empty();
        (self.options.include_token && is_exact).then(|| self.scope.token(&self.position))
    }
}

impl Items for FeedItems {
    fn next(&mut self, _env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        let element = self.next_element()?;
        let token = self.token();
        Ok(Some(element.into_datum(self.options.include_types, token)))
    }

    fn is_infinite(&self) -> bool {
        true
    }
}

impl Drop for FeedItems {
    fn drop(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.close();
        }
    }
}
