//! Drives the query service on a worker's thread: one call carries out what all ready connections have begun. If this
//! thread also drives the links to other nodes, messages for the same node leave together.
//!
//! On a node with a single worker thread, a separate thread for links would only cause context switches: each would
//! wake the other for every request between nodes.
#![allow(unsafe_code, reason = "a file descriptor that is ours is watched")]

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::io::real::BorrowedLoop;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

use crate::service::QueryService;
use crate::worker_state::WorkerState;

/// Upper bound of the time during which a batch collects more work; connections that are ready at its end are still
/// polled.
const BATCH_WINDOW_MAX: Duration = Duration::from_micros(500);

/// The longest time between two polls of idle links.
const LINK_POLL_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Drives the service after all ready connections have been polled, because larger batches cost less per query. Also
/// drives `links`, if given.
pub(crate) async fn drive_worker(worker: Rc<WorkerState>, links: Option<BorrowedLoop>) {
    match links.map(Links::watch) {
        Some(Ok(links)) => drive_service_and_links(&worker, links).await,
        Some(Err(error)) => {
            tracing::warn!(
                "cannot drive the links to other servers here; they stay on their own thread: {error}"
            );
            drive_service(&worker).await;
        }
        None => drive_service(&worker).await,
    }
}

async fn drive_service(worker: &WorkerState) {
    loop {
        poll_fn(|cx| worker.poll_drive_request(cx)).await;
        if collect_batch(worker).await {
            drive(worker);
        }
    }
}

async fn drive_service_and_links(worker: &WorkerState, mut links: Links) {
    let mut has_events = true;
    loop {
        // Incoming messages and the queries of ready connections are handled in one batch.
        let held = HoldGuard::of(&*worker.shared.service);
        if has_events {
            links.driver.receive();
        }
        // A client that has just received the response of another node may send its next query now: its messages leave
        // in the same batch.
        tokio::task::yield_now().await;
        drop(held);
        if collect_batch(worker).await {
            drive(worker);
        }
        let poll_after = poll_fn(|cx| Poll::Ready(links.driver.flush(cx.waker()))).await;
        has_events = poll_after.is_zero() || links.wait(worker, poll_after).await;
    }
}

/// Carries out what connections have begun. A panic must affect neither the links nor later queries.
fn drive(worker: &WorkerState) {
    if catch_unwind(AssertUnwindSafe(|| worker.shared.service.drive())).is_err() {
        tracing::error!(
            "a panic while queries were run: some clients may receive no response and have to send their queries again"
        );
    }
}

/// After several queries, polls the sockets as long as each poll yields more: clients that have just been answered send
/// again. Queries that are already waiting wait at most [`BATCH_WINDOW_MAX`]. Returns whether there is anything to
/// carry out.
async fn collect_batch(worker: &WorkerState) -> bool {
    let began = Instant::now();
    collect_batch_until(|| worker.take_drive_requests(), || began.elapsed() > BATCH_WINDOW_MAX).await
}

async fn collect_batch_until(take_drive_requests: impl Fn() -> usize, is_late: impl Fn() -> bool) -> bool {
    match take_drive_requests() {
        0 => return false,
        1 => return true,
        _ => {}
    }
    loop {
        tokio::task::yield_now().await;
        if take_drive_requests() == 0 || is_late() {
            return true;
        }
    }
}

/// Holds a service (see [`QueryService::hold`]) until this is dropped.
struct HoldGuard<'a>(&'a dyn QueryService);

impl HoldGuard<'_> {
    fn of(service: &dyn QueryService) -> HoldGuard<'_> {
        service.hold();
        HoldGuard(service)
    }
}

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The links to other nodes, and the event that says that one of them is ready.
struct Links {
    driver: BorrowedLoop,
    events: AsyncFd<OwnedFd>,
    /// The latest time of the next poll. It may fire early, so that it need not be reset for each wait: the runtime
    /// makes a system call to wake itself for a timer that expires before all others.
    timer: Pin<Box<Sleep>>,
}

impl Links {
    fn watch(driver: BorrowedLoop) -> io::Result<Links> {
        let events = driver.events()?;
        // SAFETY: the owned descriptor stays open and unchanged until it is dropped.
        let events = unsafe { AsyncFd::register_with_interest(events, Interest::READABLE)? };
        Ok(Links { driver, events, timer: Box::pin(tokio::time::sleep(Duration::ZERO)) })
    }

    /// Waits until there is something to do, at most `poll_after`. Returns whether a link may be ready.
    async fn wait(&mut self, worker: &WorkerState, poll_after: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + poll_after.min(LINK_POLL_INTERVAL_MAX);
        if self.timer.is_elapsed() || deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        let may_have_happened = poll_fn(|cx| self.poll_work(worker, cx)).await;
        // A query that begins while connections are polled must not cut that short.
        worker.clear_drive_waker();
        may_have_happened
    }

    /// Ready with `true` when a link is ready or the timer has fired, and with `false` when connections have begun
    /// queries or another thread has a message for a link.
    fn poll_work(&mut self, worker: &WorkerState, cx: &mut Context<'_>) -> Poll<bool> {
        if let Poll::Ready(event) = self.events.poll_read_ready(cx) {
            // Later readiness is a new event, even if it is handled with this one. The poll of the links finds an
            // error.
            event.into_iter().for_each(|mut event| event.clear_ready());
            return Poll::Ready(true);
        }
        match worker.poll_drive_request(cx).is_ready() || self.driver.has_pending_wake() {
            true => Poll::Ready(false),
            false => self.timer.as_mut().poll(cx).map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use protocol::response::ServerInfo;
    use protocol::scram::PasswordRecord;
    use tokio::runtime::Builder;

    use super::*;
    use crate::service::{Client, Session};

    /// How many times the requests are taken when each poll yields the next number of `requests`, the last one
    /// repeatedly, and the batch window ends after `late` polls.
    fn looks(requests: &[usize], late: usize) -> usize {
        let looks = Cell::new(0);
        let take_drive_requests = || {
            let look = looks.replace(looks.get() + 1);
            requests[look.min(requests.len() - 1)]
        };
        Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(collect_batch_until(take_drive_requests, || looks.get() >= late));
        looks.get()
    }

    #[test]
    fn a_turn_for_several_waits_for_as_long_as_more_comes() {
        assert_eq!(looks(&[2, 0], 100), 2);
        assert_eq!(looks(&[2, 5, 1, 0], 100), 4);
        assert_eq!(looks(&[1, 5], 100), 1, "one alone does not wait");
    }

    #[test]
    fn it_does_not_wait_when_it_is_late() {
        assert_eq!(looks(&[2, 1], 10), 10);
    }

    /// Counts calls of `hold` and `release`.
    #[derive(Default)]
    struct Counting {
        held: AtomicUsize,
        released: AtomicUsize,
    }

    impl QueryService for Counting {
        fn password(&self, _user: &str) -> Option<PasswordRecord> {
            None
        }

        fn server_info(&self) -> ServerInfo {
            ServerInfo { id: String::new(), name: String::new(), is_proxy: false }
        }

        fn hold(&self) {
            self.held.fetch_add(1, Ordering::Relaxed);
        }

        fn release(&self) {
            self.released.fetch_add(1, Ordering::Relaxed);
        }

        fn session(&self, _client: Client) -> Arc<dyn Session> {
            unreachable!("nobody connects")
        }
    }

    #[test]
    fn a_fault_while_the_service_is_held_releases_it() {
        let service = Counting::default();
        let fault = catch_unwind(AssertUnwindSafe(|| {
            let _held = HoldGuard::of(&service);
            assert_eq!(service.released.load(Ordering::Relaxed), 0, "not before its end");
            panic!("as asked");
        }));
        assert!(fault.is_err());
        let counted = [&service.held, &service.released].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counted, [1, 1]);
    }
}
