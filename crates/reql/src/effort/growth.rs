//! Terms whose time is bounded by what they are given, and how large what they make can be.

use crate::signature::Op;

/// How large what a term makes can be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Growth {
    /// A number, a bool, null or a time.
    Scalar,
    /// So many times as large as its first argument.
    First(usize),
    /// As large as the largest of its arguments.
    OneOf,
    /// As large as all arguments; of scalars a scalar.
    Number,
    /// As large as all arguments.
    AllOf,
}

impl Growth {
    /// How many times as large as its first argument.
    pub fn factor(self) -> usize {
        match self {
            Growth::First(factor) => factor,
            _ => 1,
        }
    }
}

/// A quote of a string in a string takes two bytes, a control character six.
const AS_TEXT: usize = 6;
/// A character of a string as a string of its own.
const SPLIT: usize = 4;
/// A small letter whose capital is three.
const OTHER_CASE: usize = 3;

/// How large what `op` makes can be. `None` for terms that may take any time: those that make much of little
/// (`range`, `fold`), those whose time is not that of a walk (relations of shapes, joins), and whatever was not thought of.
pub(super) fn growth(op: Op) -> Option<Growth> {
    use Op::*;
    Some(match op {
        MakeArray | MakeObj | Object | Append | Prepend | InsertAt | ChangeAt | SpliceAt | SetInsert
        | SetIntersection | SetUnion | Merge | Union | Literal | Point | Line | Polygon | Geojson => {
            Growth::AllOf
        }
        Add | Funcall => Growth::Number,
        Branch | Or | And | Default => Growth::OneOf,
        // With arguments of its own kind each: see `Measure::call`.
        Mul => Growth::Number,
        Format => Growth::First(AS_TEXT),
        CoerceTo | ToJsonString => Growth::First(AS_TEXT),
        Split => Growth::First(SPLIT),
        Upcase | Downcase => Growth::First(OTHER_CASE),
        DeleteAt | Difference | SetDifference | OffsetsOf | Keys | Values | GetField | Bracket | Pluck
        | Without | WithFields | Map | ConcatMap | Filter | Min | Max | OrderBy | Asc | Desc | Distinct
        | Limit | Skip | Slice | Nth | Json | Binary | Match | TypeOf | ToIso8601 | Timezone | Uuid
        | MinVal | MaxVal | ToGeojson | Error => Growth::First(1),
        Eq | Ne | Lt | Le | Gt | Ge | Not | Sub | Div | Mod | Floor | Ceil | Round | BitAnd | BitOr
        | BitXor | BitNot | BitSal | BitSar | Random | Contains | HasFields | Count | Sum | Avg | IsEmpty => {
            Growth::Scalar
        }
        Iso8601 | EpochTime | ToEpochTime | Now | InTimezone | During | Date | TimeOfDay | Year | Month
        | Day | DayOfWeek | DayOfYear | Hours | Minutes | Seconds | Time => Growth::Scalar,
        Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday | January | February | March
        | April | May | June | July | August | September | October | November | December => Growth::Scalar,
        _ => return None,
    })
}
