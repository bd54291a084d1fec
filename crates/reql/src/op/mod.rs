//! The leaf terms: functions from evaluated arguments to a datum, one file per family.
//!
//! A leaf sees arguments that were already evaluated and counted. Terms that decide themselves
//! what to evaluate (`branch`, `default`, `do`, …) are in `eval`; terms over sequences are in
//! `sequence`, `transform` and `terminal`, which fall back to a leaf here when the first
//! argument is not a sequence (`count` of a string, `pluck` of one object, …).

use datum::Datum;

use crate::args::Args;
use crate::error::EvalError;
use crate::signature::Op;

/// A leaf term.
pub type Leaf = fn(&Args<'_>) -> Result<Datum, EvalError>;

/// The leaf that evaluates `op`, if it is one.
#[must_use]
pub fn leaf(op: Op) -> Option<Leaf> {
    // One arm per leaf, by family:
    //   math: ADD SUB MUL DIV MOD FLOOR CEIL ROUND BIT_* RANDOM
    //   logic: EQ NE LT LE GT GE
    //   string: MATCH SPLIT UPCASE DOWNCASE FORMAT
    //   object (one object as the first argument): KEYS VALUES OBJECT GET_FIELD HAS_FIELDS
    //     PLUCK WITHOUT WITH_FIELDS MERGE
    //   array: APPEND PREPEND INSERT_AT DELETE_AT CHANGE_AT SPLICE_AT DIFFERENCE SET_*
    //   control: TYPE_OF INFO UUID MINVAL MAXVAL
    //   json: JSON TO_JSON_STRING; coerce: COERCE_TO; binary: BINARY
    //   time: ISO8601 … SECONDS, MONDAY … DECEMBER, NOW
    let _ = op;
    None
}
