//! Reads of rows that the queries of one turn ask of the same server: they travel as one question.
//!
//! A question costs each server on its way a frame, a checksum, a place among those that wait and an answer of its own,
//! whatever number of rows it is about. Where many connections are ready together, many of their reads go the same way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{AskError, ServerId};
use datum::{Datum, PrimaryKey};
use parking_lot::Mutex;
use storage::TableId;

use crate::links::{Links, OneShot, Trouble, Written};
use crate::read_mode::ReadMode;

/// Most rows that one question asks for: so many are looked up on the thread that brings the question.
pub(crate) const TOGETHER_MAX: usize = 16;

/// For so long a server is not asked instead of another for rows of a table of which it did not have all: replicas are
/// filled for minutes.
const AVOIDED_FOR: Duration = Duration::from_secs(10);

/// Whom reads are asked of together, and what of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errand {
    /// The server that has the rows.
    pub server: ServerId,
    /// Whose rows.
    pub table: TableId,
    /// How fresh they have to be.
    pub mode: ReadMode,
}

/// The row that one of the reads gets, null if there is none.
pub(crate) type RowSlot = OneShot<Result<Datum, NoRow>>;

/// Why a read that was asked together with others has no row.
#[derive(Debug)]
pub(crate) enum NoRow {
    /// There was no answer.
    Lost(AskError),
    /// There was none for all of them, perhaps because of one: it is to be asked for alone.
    AskAlone,
}

/// How rows are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// The question for the rows under some keys of a table.
    pub question: fn(TableId, ReadMode, Vec<PrimaryKey>) -> Written,
    /// The rows in an answer, in the order of the keys.
    pub rows: fn(Bytes) -> Result<Vec<Datum>, Trouble>,
    /// How long the answer is waited for.
    pub patience: Duration,
}

/// The reads that wait for the turn.
#[derive(Default)]
pub(crate) struct Gets {
    waiting: Mutex<Vec<Batch>>,
    avoided: Mutex<Vec<Avoided>>,
    /// Whether any are: seldom.
    some_avoided: AtomicBool,
}

/// A server that did not have all rows of a table that it should have.
struct Avoided {
    server: ServerId,
    table: TableId,
    until: Instant,
}

/// The reads of one errand.
struct Batch {
    errand: Errand,
    manner: Manner,
    keys: Vec<PrimaryKey>,
    slots: Vec<Arc<RowSlot>>,
}

impl Gets {
    /// Asks for the row under `key` with the next [`Gets::leave`], or before if many are asked for; says whom. That is
    /// another than the errand's server if `has_too` of it and it is asked anyway: the fewer are asked, the less it costs.
    pub fn add(
        &self,
        links: &Links,
        errand: Errand,
        manner: Manner,
        key: PrimaryKey,
        has_too: impl Fn(ServerId) -> bool,
    ) -> (ServerId, Arc<RowSlot>) {
        let slot = Arc::<RowSlot>::default();
        let serves = |asked: Errand| {
            asked == errand
                || (Errand { server: errand.server, ..asked } == errand
                    && has_too(asked.server)
                    && !self.avoids(asked.server, errand.table))
        };
        let (server, full) = {
            let mut waiting = self.waiting.lock();
            // They are few: one for each server and table.
            let place = waiting.iter().position(|batch| serves(batch.errand)).unwrap_or_else(|| {
                waiting.push(Batch { errand, manner, keys: Vec::new(), slots: Vec::new() });
                waiting.len() - 1
            });
            let batch = &mut waiting[place];
            batch.keys.push(key);
            batch.slots.push(slot.clone());
            let server = batch.errand.server;
            (server, (batch.keys.len() == TOGETHER_MAX).then(|| waiting.swap_remove(place)))
        };
        full.into_iter().for_each(|batch| batch.ask(links));
        (server, slot)
    }

    /// Asks for all that wait. The questions leave with [`Links::turn`].
    pub fn leave(&self, links: &Links) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(|batch| batch.ask(links));
    }

    /// `server` did not answer for all rows of `table` that it was asked for: for a while it is asked for none that
    /// another server could be asked for.
    pub fn avoid(&self, server: ServerId, table: TableId) {
        let mut avoided = self.avoided.lock();
        avoided.retain(|other| (other.server, other.table) != (server, table));
        avoided.push(Avoided { server, table, until: Instant::now() + AVOIDED_FOR });
        self.some_avoided.store(true, Ordering::Relaxed);
    }

    fn avoids(&self, server: ServerId, table: TableId) -> bool {
        if !self.some_avoided.load(Ordering::Relaxed) {
            return false;
        }
        let (mut avoided, now) = (self.avoided.lock(), Instant::now());
        avoided.retain(|other| now < other.until);
        self.some_avoided.store(!avoided.is_empty(), Ordering::Relaxed);
        avoided.iter().any(|other| (other.server, other.table) == (server, table))
    }
}

impl Batch {
    fn ask(self, links: &Links) {
        let Batch { errand: Errand { server, table, mode }, manner, keys, slots } = self;
        match (manner.question)(table, mode, keys) {
            Ok(question) => {
                let told = move |answer: Result<Bytes, AskError>| {
                    tell(slots, answer.map(|answer| (manner.rows)(answer).ok()));
                };
                links.ask_aside_telling(server, question, manner.patience, Box::new(told));
            }
            // There is no memory for it, or a limit: alone each is told so.
            Err(_) => tell(slots, Ok(None)),
        }
    }
}

/// Tells each what came of the question: its row, or that it is to ask alone.
fn tell(slots: Vec<Arc<RowSlot>>, answer: Result<Option<Vec<Datum>>, AskError>) {
    match answer {
        Ok(Some(rows)) if rows.len() == slots.len() => {
            slots.iter().zip(rows).for_each(|(slot, row)| slot.tell(Ok(row)));
        }
        Ok(_) => slots.iter().for_each(|slot| slot.tell(Err(NoRow::AskAlone))),
        Err(error) => slots.iter().for_each(|slot| slot.tell(Err(NoRow::Lost(error.clone())))),
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Answered, Ask};
    use uuid::Uuid;

    use super::*;

    /// Notes who is asked, and for how many rows.
    #[derive(Default)]
    struct Asked(Mutex<Vec<(ServerId, usize)>>);

    impl Ask for Asked {
        fn ask(&self, server: ServerId, question: Bytes, _patience: Duration, _answered: Answered) {
            self.0.lock().push((server, question.len()));
        }

        fn is_connected(&self, _server: ServerId) -> bool {
            true
        }
    }

    /// A question as long as the number of its rows.
    const MANNER: Manner = Manner {
        question: |_, _, keys| Ok(vec![0; keys.len()].into()),
        rows: |_| Ok(Vec::new()),
        patience: Duration::from_secs(1),
    };
    const TABLE: TableId = TableId::from_uuid(Uuid::from_u128(7));

    fn server(number: u128) -> ServerId {
        ServerId(Uuid::from_u128(number))
    }

    fn links() -> (Links, Arc<Asked>) {
        let (links, asked) = (Links::new(0), Arc::<Asked>::default());
        links.set(asked.clone());
        (links, asked)
    }

    /// Asks `gets` for rows that each of two servers has: (the one that is asked first, the other).
    fn ask(gets: &Gets, links: &Links, mode: ReadMode, rows: &[(u128, u128)]) {
        for (first, other) in rows {
            let errand = Errand { server: server(*first), table: TABLE, mode };
            let key = PrimaryKey::encode(&Datum::Number(1.0)).expect("a number is a key");
            gets.add(links, errand, MANNER, key, |asked| asked == server(*other));
        }
        gets.leave(links);
    }

    #[test]
    fn a_server_that_is_asked_anyway_is_asked_for_the_rows_of_others_too() {
        let ((links, asked), gets) = (links(), Gets::default());
        ask(&gets, &links, ReadMode::Outdated, &[(1, 2), (2, 3), (3, 1), (2, 1), (4, 5)]);
        assert_eq!(asked.0.lock().as_slice(), [(server(1), 3), (server(2), 1), (server(4), 1)]);
    }

    #[test]
    fn one_that_did_not_have_all_rows_is_not() {
        let ((links, asked), gets) = (links(), Gets::default());
        gets.avoid(server(1), TABLE);
        ask(&gets, &links, ReadMode::Outdated, &[(1, 2), (3, 1), (2, 3)]);
        assert_eq!(asked.0.lock().as_slice(), [(server(1), 1), (server(3), 2)]);
    }
}
