//! What is being answered for other nodes, by the number it can be stopped by.
//!
//! A question is entered when it arrives, before it waits for a thread: whoever changes their mind at once says so
//! on the same link right behind it.

use std::collections::HashMap;
use std::sync::Arc;

use cluster::ServerId;
use parking_lot::Mutex;
use reql::Cancel;

/// Who asked, and the number they gave it.
pub(super) type Key = (ServerId, u64);

/// The questions that can be stopped.
#[derive(Default)]
pub(super) struct Running(Mutex<HashMap<Key, Arc<Cancel>>>);

/// A question that can be stopped until this is dropped.
pub(super) struct Entered {
    running: Arc<Running>,
    key: Key,
    /// Set when it is to stop.
    pub cancel: Arc<Cancel>,
}

impl Running {
    /// From now on the question can be stopped: `cancel` is set then.
    pub fn enter(self: &Arc<Self>, key: Key, cancel: Arc<Cancel>) -> Entered {
        self.0.lock().insert(key, cancel.clone());
        Entered { running: self.clone(), key, cancel }
    }

    /// Stops a question that is here.
    pub fn stop(&self, key: Key) {
        if let Some(cancel) = self.0.lock().get(&key) {
            cancel.set();
        }
    }

    /// Stops all that `server` asked.
    pub fn stop_all(&self, server: ServerId) {
        let running = self.0.lock();
        running.iter().filter(|((owner, _), _)| *owner == server).for_each(|(_, cancel)| cancel.set());
    }
}

impl Entered {
    /// Who asked, and the number.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.running.0.lock().remove(&self.key);
    }
}
