//! A stream between two batches, and the memory it holds.

use std::sync::Arc;

use ::io::memory::{Account, Owner};

use crate::service::Cursor;

/// A stream that a client may ask for more of.
pub struct Stream {
    /// Where the next batch comes from.
    pub cursor: Box<dyn Cursor>,
    /// What it holds.
    pub account: Arc<Account>,
}

impl Stream {
    /// A stream that waits to be asked: what it holds counts as a cursor's from now on.
    pub fn idle(cursor: Box<dyn Cursor>, account: Arc<Account>) -> Stream {
        account.move_to(Owner::Cursors);
        Stream { cursor, account }
    }

    /// Its parts, to fetch a batch: what it holds counts as a query's again.
    pub fn resume(self) -> (Box<dyn Cursor>, Arc<Account>) {
        self.account.move_to(Owner::Queries);
        (self.cursor, self.account)
    }
}
