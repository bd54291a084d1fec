//! Lets the other ready tasks of a thread run first.

use std::future::poll_fn;
use std::task::Poll;

/// Yields to all tasks that are ready now. Unlike `tokio::task::yield_now` it does not poll the sockets, which is a
/// system call.
pub(crate) async fn yield_to_ready_tasks() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
