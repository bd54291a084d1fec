//! The result of a query: one value, or a cursor over a stream.

use datum::Datum;

use super::cursor::Cursor;

/// The result of a query.
pub enum Answer {
    /// One datum. It was checked to have a JSON form.
    Atom(Datum),
    /// A stream, read with [`Cursor::next_batch`].
    Stream(Box<Cursor>),
}

/// A result and its profile.
pub struct Answered {
    /// The result.
    pub answer: Answer,
    /// The profile, if the query asked for one and its result is an atom. Batches of streams have their own.
    pub profile: Option<Datum>,
}
