//! A task that lets others of its thread go first.

use std::future::poll_fn;
use std::task::Poll;

/// Lets everybody go first who is ready now. Unlike `yield_now` it does not look at the sockets, which is
/// a system call.
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
