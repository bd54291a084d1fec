//! The links to other nodes, driven by a thread that serves drivers. A node with one such thread has no use for
//! another: the two would take turns, and wake each other for every question between nodes.
#![allow(unsafe_code, reason = "a file descriptor that is ours is watched")]

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;

use ::io::real::Borrowed;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Drives them, each time after the connections that are ready have had their turn: what they ask of a node leaves
/// together with what is answered to it. Ends only if that is not possible; then the links drive themselves.
pub(crate) async fn drive(mut links: Borrowed) {
    let events = match links.events().and_then(watched) {
        Ok(events) => events,
        Err(error) => return tracing::warn!("the links to other servers keep their own thread: {error}"),
    };
    loop {
        // Looks at the drivers' sockets once more: what they have sent meanwhile leaves with the rest.
        tokio::task::yield_now().await;
        let rest = poll_fn(|cx| Poll::Ready(links.turn(cx.waker()))).await;
        if !rest.is_zero() {
            // Without something to do there is as much reason to look.
            drop(tokio::time::timeout(rest, something_to_do(&events, &links)).await);
        }
    }
}

fn watched(events: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: a descriptor that is owned stays open, and the same, until what owns it is dropped.
    unsafe { Ok(AsyncFd::register_with_interest(events, Interest::READABLE)?) }
}

/// Returns when something happened on a link, or another thread has something for one.
async fn something_to_do(events: &AsyncFd<OwnedFd>, links: &Borrowed) {
    poll_fn(|cx| {
        if links.has_news() {
            return Poll::Ready(());
        }
        events.poll_read_ready(cx).map(|ready| {
            // What happens from now on is another event, whether the turn sees it or not.
            ready.into_iter().for_each(|mut ready| ready.clear_ready());
        })
    })
    .await;
}
