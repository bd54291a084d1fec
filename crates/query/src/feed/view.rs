//! Values that a feed computes from rows and keeps up to date: the first rows of an order, aggregates, joins.

use datum::{Object, PrimaryKey};
use reql::EvalError;

use super::element::Element;
use super::plan::FeedPlan;
use crate::context::Cx;

/// A change of a row of one of the sequences from which a view is computed.
pub(super) struct RowChange<'a> {
    pub cx: &'a Cx,
    /// The place of the sequence among them, and its plan.
    pub source: usize,
    pub plan: &'a FeedPlan,
    pub key: &'a PrimaryKey,
    pub old: Option<&'a Object>,
    pub new: Option<&'a Object>,
}

/// The rows that a view has to be given before its elements are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// All rows, after [`View::begin_refill`].
    AllRows,
    /// Those under some keys of the last source: [`View::take_wanted`].
    Keys,
}

/// A value that is computed from rows.
pub(super) trait View: Send {
    /// Takes a change into account. Fails if the view becomes too large.
    fn change(&mut self, change: &RowChange<'_>) -> Result<(), EvalError>;

    /// Forgets all rows: every present row of each source follows with [`View::change`]. The values that the client knows are kept.
    fn begin_refill(&mut self);

    /// The rows to read before [`View::elements`] may be called.
    fn needs(&self) -> Need;

    /// The keys of the needed rows of the last source. The rows that exist follow with [`View::change`].
    fn take_wanted(&mut self) -> Vec<PrimaryKey> {
        Vec::new()
    }

    /// How many rows of the only source, the first ones in its order, are enough to fill the view. `None` if it needs all of them.
    fn first_rows(&self) -> Option<usize> {
        None
    }

    /// The view was filled with the rows up to this one, of the source of `plan`. It forgets what may be incomplete.
    fn cut_after(&mut self, _plan: &FeedPlan, _key: &PrimaryKey, _row: &Object) {}

    /// Whether it calls functions of the query.
    fn calls_functions(&self) -> bool {
        false
    }

    /// Whether all rows of a source are read when the view is filled. Otherwise it asks for some of them.
    fn reads_all_of(&self, _source: usize) -> bool {
        true
    }

    /// The elements for a client that knows nothing yet.
    fn initial(&mut self) -> Result<Vec<Element>, EvalError>;

    /// The elements for everything that has changed since the last call.
    fn elements(&mut self) -> Result<Vec<Element>, EvalError>;
}
