//! Terms whose time is bounded by the size of their arguments, and bounds on the size of their results.

use crate::signature::Op;

/// A bound on the size of a term's result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Growth {
    /// A number, a bool, null or a time.
    Scalar,
    /// At most this many times the size of the first argument.
    First(usize),
    /// At most the size of the largest argument.
    OneOf,
    /// At most the size of all arguments together; a scalar if they are scalars.
    Number,
    /// At most the size of all arguments together.
    AllOf,
}

impl Growth {
    /// The factor by which the result may exceed the first argument.
    pub fn factor(self) -> usize {
        match self {
            Growth::First(factor) => factor,
            _ => 1,
        }
    }
}

/// A quotation mark takes two bytes in a JSON string, a control character six.
const AS_TEXT: usize = 6;
/// A character becomes a separate string.
const SPLIT: usize = 4;
/// A lower-case letter may have an upper-case form of three characters.
const OTHER_CASE: usize = 3;

/// The bound on the result of `op`. `None` for terms without a bound on their time: `range` and `fold`, which make
/// much out of little; joins and relations of geometries, which do more than walk through their arguments; and all
/// terms not listed.
pub(super) fn growth(op: Op) -> Option<Growth> {
    use Op::*;
    Some(match op {
        MakeArray | MakeObj | Object | Append | Prepend | InsertAt | ChangeAt | SpliceAt | SetInsert
        | SetIntersection | SetUnion | Merge | Union | Literal | Point | Line | Polygon | Geojson => {
            Growth::AllOf
        }
        Add | Funcall => Growth::Number,
        Branch | Or | And | Default => Growth::OneOf,
        // See `Measure::call` for the conditions on its arguments.
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
