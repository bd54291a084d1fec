//! What a query answers: one value, or a cursor that yields batches.

use datum::Datum;

use super::cursor::Cursor;

/// The answer of a query.
pub enum Answer {
    /// One datum, sent as SUCCESS_ATOM. It was checked to have a JSON form.
    Atom(Datum),
    /// A stream; its first batch is pulled with [`Cursor::next_batch`].
    Stream(Box<Cursor>),
}

/// An answer and what was measured on the way to it.
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// The profile, when the query asked for one and is answered with an atom. Streams bring
    /// theirs with each batch.
    pub profile: Option<Datum>,
}
