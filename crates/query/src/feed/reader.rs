//! What all streams of feeds have: a queue of changes, and the position of the client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::{FeedPosition, FeedStart, GroupId, Subscription};
use reql::{ErrorClass, EvalError};

use super::options::FeedOptions;
use super::plan::{FeedPlan, unavailable};
use super::position::{ClientPosition, GroupPosition, InitialPosition};
use super::queue::{ChangeQueue, Taken};
use super::subscriber::FeedSubscriber;
use super::token;
use crate::context::Cx;
use crate::table::{TableRef, access};

/// The reader's end of a feed.
pub(super) struct FeedReader {
    pub cx: Arc<Cx>,
    pub options: FeedOptions,
    subscriber: Arc<FeedSubscriber>,
    /// How far the client has come.
    pub position: ClientPosition,
    subscription: Option<Arc<Subscription>>,
}

impl FeedReader {
    /// Begins a feed at the returned positions: the present ones, or those after `resumed`. Fails if the caller may not read the
    /// table, if no leader can be reached, or if the catalog no longer knows a position.
    pub fn open(
        cx: &Cx,
        plan: FeedPlan,
        options: &FeedOptions,
        resumed: Option<ClientPosition>,
    ) -> Result<(FeedReader, Vec<FeedStart>), EvalError> {
        options.check(plan.kind)?;
        access::check_stream_read(cx, &TableRef::Stored(plan.table.clone()))?;
        let feeds = cx.node().feeds();
        // Also a resumed feed switches the histories on.
        let present = plan.start(feeds)?;
        let starts = match &resumed {
            None => present,
            Some(position) => {
                let groups: Vec<_> = position.feeds().collect();
                feeds.resume(&plan.table.handle, &plan.interest, &groups).ok_or_else(token::gone)?
            }
        };
        let fresh = || ClientPosition {
            groups: starts.iter().map(|start| (start.group, GroupPosition::of(start.position))).collect(),
            initial: options.include_initial.then(InitialPosition::default),
        };
        cx.feeds.add(plan.kind, options.include_states)?;
        if resumed.is_some() {
            cx.service.feed_counters.resumes.fetch_add(1, Ordering::Relaxed);
        }
        let cx = cx.shared()?;
        let subscriber = FeedSubscriber::new(cx.clone(), plan, options.squash, options.queue_max);
        if let Some(position) = &resumed {
            subscriber.leave_out(position.groups.iter().map(|(group, at)| (*group, at.elements)));
        }
        let position = resumed.unwrap_or_else(fresh);
        let (options, subscriber) = (options.clone(), Arc::new(subscriber));
        Ok((FeedReader { cx, options, subscriber, position, subscription: None }, starts))
    }

    /// Whether it continues an earlier feed.
    pub fn is_resumed(&self) -> bool {
        self.options.resume_after.is_some()
    }

    /// The rows and steps of the feed.
    pub fn plan(&self) -> &FeedPlan {
        &self.subscriber.plan
    }

    /// The changes that wait.
    pub fn queue(&self) -> &ChangeQueue {
        &self.subscriber.queue
    }

    /// How far the feed has come in each group of which no change waits: changes that do not concern it pass by the queue.
    pub fn reached(&self) -> Vec<(GroupId, FeedPosition)> {
        // In this order: all changes before the positions were queued before the positions were there to be read.
        let mut positions =
            self.subscription.as_ref().map(|subscription| subscription.positions()).unwrap_or_default();
        positions.retain(|(group, _)| !self.queue().may_have_changes_of(*group));
        positions
    }

    /// Begins to receive changes, from these positions.
    pub fn subscribe(&mut self, starts: Vec<FeedStart>) {
        let plan = &self.subscriber.plan;
        let (table, interest) = (plan.table.handle.config.id, plan.interest.clone());
        let feeds = self.cx.node().feeds();
        self.subscription = Some(feeds.subscribe(table, interest, starts, self.subscriber.clone()));
        self.cx.feeds.set_started();
    }

    /// The error of a feed for which rows cannot be read. One that has begun ends as one that cannot receive changes: it may be
    /// resumed later.
    pub fn cannot_read(&self, error: EvalError) -> EvalError {
        match self.subscription.is_some() && error.class() == ErrorClass::OpFailed {
            true => self.queue().ended().unwrap_or_else(|| unavailable(&self.plan().table)),
            false => error,
        }
    }

    /// The next entry of the queue, if there is one now.
    pub fn pop_now(&self) -> Option<Taken> {
        let entry = self.queue().pop(None).ok()??;
        if self.queue().take_held_back() {
            self.cx.node().feeds().continue_reading();
        }
        Some(entry)
    }

    /// The next entry of the queue: see [`next_of`].
    pub fn pop(&self) -> Result<Taken, EvalError> {
        let entry = next_of(&self.cx, self.queue())?;
        if self.queue().take_held_back() {
            self.cx.node().feeds().continue_reading();
        }
        Ok(entry)
    }
}

/// The next entry of the queue of a feed. If there is none, it fails with [`EvalError::not_ready`], and the query's waker is woken
/// once there is.
pub(super) fn next_of(cx: &Cx, queue: &ChangeQueue) -> Result<Taken, EvalError> {
    queue.pop(cx.feeds.waker().as_ref())?.ok_or_else(EvalError::not_ready)
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.close();
        }
    }
}
