//! Dropped changes of feeds, whose memory is freed elsewhere.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use io::task;
use parking_lot::Mutex;

/// Frees values that take long to free, such as full queues, on a thread that exists only meanwhile. So the thread that
/// serves all feeds does not wait for it.
#[derive(Default)]
pub(crate) struct FeedGarbage {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Box<dyn Any + Send>>,
    has_thread: bool,
}

impl FeedGarbage {
    /// Frees `value`: soon, or at once where no thread can be started.
    pub(crate) fn free(self: &Arc<Self>, value: impl Any + Send) {
        {
            let mut state = self.state.lock();
            state.waiting.push_back(Box::new(value));
            if std::mem::replace(&mut state.has_thread, true) {
                return;
            }
        }
        let own = self.clone();
        if task::spawn("feed-garbage", move || own.free_all()).is_err() {
            self.free_all();
        }
    }

    fn free_all(&self) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.waiting.pop_front();
                state.has_thread = next.is_some();
                next
            };
            match next {
                Some(value) => drop(value),
                None => return,
            }
        }
    }
}

impl fmt::Debug for FeedGarbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedGarbage").finish_non_exhaustive()
    }
}
