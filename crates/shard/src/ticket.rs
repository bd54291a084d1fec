//! The outcome of a write, which the log determines later. A ticket is a future, and can also be waited for by
//! blocking.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io::task::Condvar;
use log::{Interruption, Lsn};
use parking_lot::Mutex;

use crate::WriteError;

/// A pending write. Dropping the ticket does not affect the write.
///
/// Resolves to the position of the write's entry once the write is as durable as requested and visible to reads; if
/// there was nothing to write, to the position of the newest applied entry.
#[must_use = "the write may still fail"]
pub struct WriteTicket(TicketState);

enum TicketState {
    Known(Result<Lsn, WriteError>),
    Waiting(Arc<Slot>),
}

#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlotState {
    outcome: Option<Result<Lsn, WriteError>>,
    waker: Option<Waker>,
    // Whether a thread waits. Notifying costs a system call even if none does.
    blocked: bool,
}

/// The sending end of a ticket. If it is dropped without sending, the outcome is indeterminate.
pub(crate) struct TicketSender(Option<Arc<Slot>>);

pub(crate) fn pair() -> (TicketSender, WriteTicket) {
    let slot = Arc::new(Slot::default());
    (TicketSender(Some(Arc::clone(&slot))), WriteTicket(TicketState::Waiting(slot)))
}

impl WriteTicket {
    pub(crate) fn known(outcome: Result<Lsn, WriteError>) -> WriteTicket {
        WriteTicket(TicketState::Known(outcome))
    }

    /// Blocks this thread until the outcome is known.
    pub fn wait(self) -> Result<Lsn, WriteError> {
        let slot = match self.0 {
            TicketState::Known(outcome) => return outcome,
            TicketState::Waiting(slot) => slot,
        };
        let mut state = slot.state.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            state.blocked = true;
            slot.changed.wait(&mut state);
        }
    }

    /// As [`WriteTicket::wait`], but returns the ticket after `timeout`.
    pub fn wait_for(self, timeout: Duration) -> Result<Result<Lsn, WriteError>, WriteTicket> {
        let slot = match self.0 {
            TicketState::Known(outcome) => return Ok(outcome),
            TicketState::Waiting(slot) => slot,
        };
        let deadline = io::task::now() + timeout;
        let mut state = slot.state.lock();
        while state.outcome.is_none() {
            state.blocked = true;
            if slot.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        let known = state.outcome.take();
        drop(state);
        known.ok_or(WriteTicket(TicketState::Waiting(slot)))
    }

    /// The outcome if it is known, otherwise the ticket.
    pub fn try_wait(self) -> Result<Result<Lsn, WriteError>, WriteTicket> {
        let slot = match self.0 {
            TicketState::Known(outcome) => return Ok(outcome),
            TicketState::Waiting(slot) => slot,
        };
        let known = slot.state.lock().outcome.take();
        known.ok_or(WriteTicket(TicketState::Waiting(slot)))
    }
}

impl Future for WriteTicket {
    type Output = Result<Lsn, WriteError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            TicketState::Known(outcome) => Poll::Ready(outcome.clone()),
            TicketState::Waiting(slot) => {
                let mut state = slot.state.lock();
                if let Some(outcome) = state.outcome.take() {
                    return Poll::Ready(outcome);
                }
                match &mut state.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl TicketSender {
    pub(crate) fn send(mut self, outcome: Result<Lsn, WriteError>) {
        if let Some(slot) = self.0.take() {
            resolve(&slot, outcome);
        }
    }
}

impl Drop for TicketSender {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            resolve(&slot, Err(WriteError::Indeterminate { cause: Interruption::Closed }));
        }
    }
}

fn resolve(slot: &Slot, outcome: Result<Lsn, WriteError>) {
    let mut state = slot.state.lock();
    state.outcome = Some(outcome);
    let waker = state.waker.take();
    let blocked = state.blocked;
    drop(state);
    if blocked {
        slot.changed.notify_one();
    }
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_resolves_to_the_sent_outcome() {
        let (sender, ticket) = pair();
        let Err(ticket) = ticket.try_wait() else { panic!("nothing was sent yet") };
        sender.send(Ok(Lsn(7)));
        assert_eq!(ticket.wait().unwrap(), Lsn(7));
        assert_eq!(WriteTicket::known(Ok(Lsn(3))).wait().unwrap(), Lsn(3));
    }

    #[test]
    fn wait_for_returns_the_ticket_after_the_timeout() {
        let (sender, ticket) = pair();
        let Err(ticket) = ticket.wait_for(Duration::from_millis(1)) else { panic!("nothing was sent yet") };
        let waiter = std::thread::spawn(move || ticket.wait_for(Duration::from_secs(60)));
        sender.send(Ok(Lsn(7)));
        assert_eq!(waiter.join().unwrap().ok().unwrap().unwrap(), Lsn(7));
    }

    #[test]
    fn a_lost_sender_leaves_doubt() {
        let (sender, ticket) = pair();
        let waiter = std::thread::spawn(move || ticket.wait());
        drop(sender);
        assert!(matches!(waiter.join().unwrap(), Err(WriteError::Indeterminate { .. })));
    }

    #[test]
    fn a_ticket_wakes_its_task() {
        let (sender, mut ticket) = pair();
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut ticket).poll(&mut context).is_pending());
        sender.send(Ok(Lsn(1)));
        assert!(matches!(Pin::new(&mut ticket).poll(&mut context), Poll::Ready(Ok(Lsn(1)))));
    }
}
