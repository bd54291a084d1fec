//! The answer to a write, which comes when the log says so. May be awaited or waited for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io::task::Condvar;
use log::{Interruption, Lsn};
use parking_lot::Mutex;

use crate::WriteError;

/// Stands for a write on its way. Dropping it changes nothing about the write.
///
/// It resolves once the write is as durable as asked and visible to reads, to the position of its
/// entry, or of the newest applied entry if there was nothing to write.
#[must_use = "the write may still fail"]
pub struct WriteTicket(TicketState);

enum TicketState {
    Known(Result<Lsn, WriteError>),
    Waiting(Arc<Slot>),
}

#[derive(Default)]
struct Slot {
    told: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlotState {
    outcome: Option<Result<Lsn, WriteError>>,
    waker: Option<Waker>,
    // Whether a thread waits; waking none costs a system call all the same.
    blocked: bool,
}

/// The other end of a ticket. If it is dropped untold, the outcome is in doubt.
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
        let mut told = slot.told.lock();
        loop {
            if let Some(outcome) = told.outcome.take() {
                return outcome;
            }
            told.blocked = true;
            slot.changed.wait(&mut told);
        }
    }

    /// As [`WriteTicket::wait`], for `timeout` at most: then the ticket again.
    pub fn wait_for(self, timeout: Duration) -> Result<Result<Lsn, WriteError>, WriteTicket> {
        let slot = match self.0 {
            TicketState::Known(outcome) => return Ok(outcome),
            TicketState::Waiting(slot) => slot,
        };
        let deadline = io::task::now() + timeout;
        let mut told = slot.told.lock();
        while told.outcome.is_none() {
            told.blocked = true;
            if slot.changed.wait_until(&mut told, deadline).timed_out() {
                break;
            }
        }
        let known = told.outcome.take();
        drop(told);
        known.ok_or(WriteTicket(TicketState::Waiting(slot)))
    }

    /// The outcome, if it is known already; else the ticket again.
    pub fn try_wait(self) -> Result<Result<Lsn, WriteError>, WriteTicket> {
        let slot = match self.0 {
            TicketState::Known(outcome) => return Ok(outcome),
            TicketState::Waiting(slot) => slot,
        };
        let known = slot.told.lock().outcome.take();
        known.ok_or(WriteTicket(TicketState::Waiting(slot)))
    }
}

impl Future for WriteTicket {
    type Output = Result<Lsn, WriteError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            TicketState::Known(outcome) => Poll::Ready(outcome.clone()),
            TicketState::Waiting(slot) => {
                let mut told = slot.told.lock();
                if let Some(outcome) = told.outcome.take() {
                    return Poll::Ready(outcome);
                }
                match &mut told.waker {
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
            tell(&slot, outcome);
        }
    }
}

impl Drop for TicketSender {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            tell(&slot, Err(WriteError::Indeterminate { cause: Interruption::Closed }));
        }
    }
}

fn tell(slot: &Slot, outcome: Result<Lsn, WriteError>) {
    let mut told = slot.told.lock();
    told.outcome = Some(outcome);
    let waker = told.waker.take();
    let blocked = told.blocked;
    drop(told);
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
    fn a_ticket_tells_what_it_is_told() {
        let (sender, ticket) = pair();
        let Err(ticket) = ticket.try_wait() else { panic!("nothing was told yet") };
        sender.send(Ok(Lsn(7)));
        assert_eq!(ticket.wait().unwrap(), Lsn(7));
        assert_eq!(WriteTicket::known(Ok(Lsn(3))).wait().unwrap(), Lsn(3));
    }

    #[test]
    fn who_waits_for_a_while_gets_the_ticket_back() {
        let (sender, ticket) = pair();
        let Err(ticket) = ticket.wait_for(Duration::from_millis(1)) else { panic!("nothing was told yet") };
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
