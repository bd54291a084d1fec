//! The turns of a thread that serves drivers: what its connections have begun is carried out for all of them at once,
//! and where it drives the links to other nodes, too, what is to leave on one of them leaves together.
//!
//! A node with one thread for drivers has no use for another for its links: the two would take turns, and wake each
//! other for every question between nodes.
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

/// What was begun waits for more no longer than this, and until those that were ready then have had their turn.
const BATCH_WINDOW_MAX: Duration = Duration::from_micros(500);

/// Links are looked at this often even if there is never anything to do.
const LINK_POLL_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Takes the service's turn for what connections have begun, after all that are ready have had theirs: the
/// more there is, the less each costs. Drives `links`, if they are given to it.
pub(crate) async fn drive_worker(worker: Rc<WorkerState>, links: Option<BorrowedLoop>) {
    match links.map(Links::watch) {
        Some(Ok(links)) => drive_service_and_links(&worker, links).await,
        Some(Err(error)) => {
            tracing::warn!("the links to other servers keep their own thread: {error}");
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
        // What the log hears from other nodes, and from the drivers that are ready, it sees to together.
        let held = HoldGuard::of(&*worker.shared.service);
        if has_events {
            links.driver.receive();
        }
        // Who was answered by another node tells its client, who may ask again: that leaves with what is answered to
        // other nodes.
        tokio::task::yield_now().await;
        drop(held);
        if collect_batch(worker).await {
            drive(worker);
        }
        let poll_after = poll_fn(|cx| Poll::Ready(links.driver.flush(cx.waker()))).await;
        has_events = poll_after.is_zero() || links.wait(worker, poll_after).await;
    }
}

/// Carries out what connections have begun. A fault there is not to cost the links, or those who begin something later.
fn drive(worker: &WorkerState) {
    if catch_unwind(AssertUnwindSafe(|| worker.shared.service.drive())).is_err() {
        tracing::error!("drivers may miss answers to what they had begun: a fault of the server");
    }
}

/// Where several have begun something, looks at the sockets for as long as each look brings more to carry out: clients
/// that have just been answered ask again. Those who wait already wait no longer when it is late. Whether there is
/// something to carry out.
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

/// A service for which more is begun in a moment, for as long as this is there.
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

/// The links to other nodes, and how this thread hears that there is something to do for them.
struct Links {
    driver: BorrowedLoop,
    events: AsyncFd<OwnedFd>,
    // When there is something to do at the latest. It may go off early, so that it need not be set for each wait: for one
    // that goes off before all others the runtime wakes its own thread, with a system call.
    timer: Pin<Box<Sleep>>,
}

impl Links {
    fn watch(driver: BorrowedLoop) -> io::Result<Links> {
        let events = driver.events()?;
        // SAFETY: a descriptor that is owned stays open, and the same, until what owns it is dropped.
        let events = unsafe { AsyncFd::register_with_interest(events, Interest::READABLE)? };
        Ok(Links { driver, events, timer: Box::pin(tokio::time::sleep(Duration::ZERO)) })
    }

    /// Waits until there is something to do, `rest` at most. Whether something may have happened on a link.
    async fn wait(&mut self, worker: &WorkerState, poll_after: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + poll_after.min(LINK_POLL_INTERVAL_MAX);
        if self.timer.is_elapsed() || deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        let may_have_happened = poll_fn(|cx| self.poll_work(worker, cx)).await;
        // Who begins something while others have their turn is not to cut that short.
        worker.clear_drive_waker();
        may_have_happened
    }

    /// Ready when something happened on a link, or the deadline_timer has gone off, and then with `true`, when connections have
    /// begun something, or another thread has something for a link.
    fn poll_work(&mut self, worker: &WorkerState, cx: &mut Context<'_>) -> Poll<bool> {
        if let Poll::Ready(event) = self.events.poll_read_ready(cx) {
            // What happens from now on is another event, whether it is seen now or not. An error is found by who looks
            // at the links.
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

    /// How often it is looked what is owed, where that is so many each time, and the last number from then on; after
    /// `late` looks it is late.
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

    /// Counts how often it is held and released.
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
