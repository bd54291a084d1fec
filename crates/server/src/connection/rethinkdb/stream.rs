//! A stream between two batches, and the memory it holds.

use std::sync::Arc;

use ::io::memory::{Account, Owner};

use crate::service::Cursor;

/// A stream of which a client may request the next batch.
pub struct Stream {
    /// Yields the next batch.
    pub cursor: Box<dyn Cursor>,
    /// The memory it holds.
    pub account: Arc<Account>,
}

impl Stream {
    /// A stream that waits for a CONTINUE: from now on its memory is accounted to cursors.
    pub fn idle(cursor: Box<dyn Cursor>, account: Arc<Account>) -> Stream {
        account.move_to(Owner::Cursors);
        Stream { cursor, account }
    }

    /// Its parts, to fetch a batch: its memory is accounted to queries again.
    pub fn resume(self) -> (Box<dyn Cursor>, Arc<Account>) {
        self.account.move_to(Owner::Queries);
        (self.cursor, self.account)
    }
}
