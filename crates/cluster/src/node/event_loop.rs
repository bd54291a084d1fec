//! The node's event loop: handles events of the catalog and of groups, so that this node holds the replicas that the catalog
//! places here, whichever server changed it.
//!
//! A step that fails is tried again in the next iteration.

use std::sync::Arc;
use std::time::Duration;

use io::task;

use super::publisher::Publisher;
use super::restart_state::RestartState;
use crate::copy::Copies;
use crate::error::OpenError;
use crate::events::{Event, EventQueue};
use crate::reshard::PendingHandovers;

/// How often the loop runs without events.
pub(super) const IDLE_INTERVAL: Duration = Duration::from_millis(500);
/// How often the loop runs without events while handovers are under way.
pub(super) const BUSY_INTERVAL: Duration = Duration::from_millis(40);

/// The event loop, and the owners that it calls.
pub(super) struct EventLoop {
    pub(super) events: Arc<EventQueue>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) copies: Arc<Copies>,
    pub(super) pending: Arc<PendingHandovers>,
    pub(super) restart: Arc<RestartState>,
}

impl EventLoop {
    /// Runs until the node stops.
    pub(super) fn run(&self) {
        let mut is_caught_up = self.restart.is_caught_up();
        loop {
            let timeout = if self.pending.is_busy() { BUSY_INTERVAL } else { IDLE_INTERVAL };
            let events = self.events.take(timeout);
            if events.contains(&Event::Stop) {
                return;
            }
            // The last entries of the catalog's log may not contain rows, so no event reports that they were applied.
            if !is_caught_up && self.restart.check() {
                is_caught_up = true;
                self.events.push(Event::Catalog);
            }
            for event in events {
                if let Err(error) = self.handle(event) {
                    tracing::error!("the node could not follow its catalog, retrying: {error}");
                    self.events.push(event);
                    task::sleep(IDLE_INTERVAL);
                }
            }
            self.do_pending_work();
        }
    }

    fn handle(&self, event: Event) -> Result<(), OpenError> {
        match event {
            Event::Catalog => self.publisher.publish()?,
            Event::Removed(group) => self.publisher.discard_removed(group)?,
            Event::NeedsRows(group) => {
                // A copy that was offered before may be complete by now.
                if self.copies.needs_rows(group) {
                    self.copies.begin(group);
                }
            }
            Event::CopyOffered(group, start) => self.copies.take_offer(group, start),
            Event::Behind(group, to) => self.copies.offer(group, to),
            Event::Role(_) | Event::SealChanged(_) | Event::Stop => {}
        }
        Ok(())
    }

    fn do_pending_work(&self) {
        if let Err(error) = self.publisher.delete_removed_replicas() {
            tracing::error!("could not delete data of removed replicas, retrying: {error}");
        }
        if let Err(error) = self.publisher.continue_handovers() {
            tracing::error!("could not open new shards, retrying: {error}");
            task::sleep(IDLE_INTERVAL);
        }
        if let Err(error) = self.publisher.sweep_when_caught_up() {
            tracing::error!("could not delete data left by a crash, retrying: {error}");
        }
    }
}
