//! The table of terms and the functions that evaluate them.

use datum::Datum;
use reql::{Arg, Call, EvalError, Op, Scope};

use crate::context::Cx;
use crate::term::sequence::SequenceCall;
use crate::term::{
    between, by_index, coerce, config, db, db_admin, get, get_all, grant, http, index, info, js, map,
    order_by, range, reconfigure, sequence, shapes, sync, table, table_admin, union, update, wait,
    write_hook,
};
use crate::value::{Args, Value};

/// Whether a term is an operation of `reql` on a sequence, which is its first argument.
pub(super) fn is_over_sequence(call: &Call) -> bool {
    match call.op {
        Op::Map => call.args.len() == 2,
        Op::InnerJoin | Op::OuterJoin => false,
        op => reql::is_operation(op),
    }
}

/// Evaluates such a term.
pub(super) fn over_sequence(
    cx: &Cx,
    call: &Call,
    scope: &Scope<'_>,
    first: Value,
) -> Result<Value, EvalError> {
    let over = SequenceCall { cx, call, scope, first };
    match call.op {
        Op::OrderBy => order_by::order_by(over),
        Op::Min | Op::Max => by_index::extreme(over),
        Op::Distinct => by_index::distinct(over),
        Op::Group => by_index::group(over),
        Op::ConcatMap => map::concat_map(over),
        _ => sequence::apply(over),
    }
}

/// Evaluates any other term.
pub(super) fn apply(args: Args<'_>) -> Result<Value, EvalError> {
    match args.op() {
        Op::Db => db::db(args),
        Op::Table => table::table(args),
        Op::Get => get::get(args),
        Op::GetAll => get_all::get_all(args),
        Op::Between | Op::BetweenDeprecated => between::between(args),
        Op::Map => map::map(args),
        Op::Union => union::union(args),
        Op::Range => range::range(args),
        Op::Error => raise(args),
        Op::CoerceTo => coerce::coerce_to(args),
        Op::Ungroup => coerce::ungroup(args),
        Op::TypeOf => info::type_of(args),
        Op::Info => info::info(args),
        Op::Delete => update::delete(args),
        Op::Sync => sync::sync(args),
        _ => other_terms(args),
    }
}

fn other_terms(args: Args<'_>) -> Result<Value, EvalError> {
    match args.op() {
        Op::DbCreate => db_admin::db_create(args),
        Op::DbDrop => db_admin::db_drop(args),
        Op::DbList => db_admin::db_list(args),
        Op::TableCreate => table_admin::table_create(args),
        Op::TableDrop => table_admin::table_drop(args),
        Op::TableList => table_admin::table_list(args),
        Op::Config => config::config(args),
        Op::Status => config::status(args),
        Op::Wait => wait::wait(args),
        Op::Reconfigure => reconfigure::reconfigure(args),
        Op::Rebalance => reconfigure::rebalance(args),
        Op::Grant => grant::grant(args),
        Op::IndexList => index::index_list(args),
        Op::IndexStatus => index::index_status(args),
        Op::IndexWait => index::index_wait(args),
        Op::IndexDrop => index::index_drop(args),
        Op::IndexCreate => index::index_create(args),
        Op::IndexRename => index::index_rename(args),
        Op::SetWriteHook => write_hook::set_write_hook(args),
        Op::GetWriteHook => write_hook::get_write_hook(args),
        Op::Http => http::http(args),
        Op::Javascript => js::js(args),
        Op::GetIntersecting => shapes::get_intersecting(args),
        Op::GetNearest => shapes::get_nearest(args),
        _ => leaf(args),
    }
}

/// `error`: raises the query's message.
fn raise(mut args: Args<'_>) -> Result<Value, EvalError> {
    match args.len() {
        0 => Err(EvalError::empty_error()),
        _ => Err(EvalError::user(args.string(0)?.to_string())),
    }
}

/// Checks argument `i` of a call, for terms that check one argument before they evaluate the next. Source: `union`,
/// `map` and `range` in terms/seq.cc of RethinkDB 2.4.
pub(super) fn checked_argument(cx: &Cx, call: &Call, i: usize, value: Value) -> Result<Value, EvalError> {
    let wants_sequence = match call.op {
        Op::Union => true,
        Op::Map if i + 1 < call.args.len() => true,
        Op::Range => false,
        _ => return Ok(value),
    };
    match value {
        groups @ Value::Grouped(_) if i == 0 => Ok(groups),
        items @ (Value::Table(_) | Value::Seq(_) | Value::Datum(Datum::Array(_))) if wants_sequence => {
            Ok(items)
        }
        other if wants_sequence => other.seq_of_argument(i, cx).map(Value::Seq),
        other => match other.into_datum(cx).map_err(|error| error.at(i))? {
            Datum::Number(number) => {
                reql::args::integer(number).map_err(|error| error.at(i))?;
                Ok(Value::Datum(Datum::Number(number)))
            }
            other => Err(EvalError::type_error("NUMBER", &other).at(i)),
        },
    }
}

/// The error of a call when an argument failed with `error` after those with `values`. A wrong type among these is
/// reported first, except for terms that check nothing before all arguments are evaluated.
pub(super) fn failed(cx: &Cx, call: &Call, values: Vec<Value>, error: EvalError) -> EvalError {
    // The term's own options have no values here.
    if values.is_empty() || !call.optargs.is_empty() || reql::op::leaf(call.op).is_none() {
        return error;
    }
    let (known, error) = match known(cx, values) {
        (known, None) => (known, error),
        (known, Some(wrong)) => (known, wrong),
    };
    reql::failed(call.op, &known, call.args.len(), error, &[], &cx.env())
}

/// Values as arguments of a closed term, up to the first that cannot be one, and its error.
fn known(cx: &Cx, values: Vec<Value>) -> (Vec<Arg>, Option<EvalError>) {
    let mut known = Vec::with_capacity(values.len());
    for (i, value) in values.into_iter().enumerate() {
        match value {
            Value::Func(closure) => known.push(Arg::Func(closure)),
            other => match other.into_datum(cx) {
                Ok(value) => known.push(Arg::Datum(value)),
                Err(error) => return (known, Some(error.at(i))),
            },
        }
    }
    (known, None)
}

/// Evaluates a closed term whose arguments are open.
fn leaf(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (cx, op) = (args.cx, args.op());
    let mut optargs = Vec::with_capacity(args.call.optargs.len());
    for (name, _) in &args.call.optargs {
        optargs.extend(args.optional_datum(name)?.map(|value| (name.clone(), value)));
    }
    let count = args.len();
    let values = (0..count).map(|i| args.take(i)).collect::<Result<_, _>>()?;
    match known(cx, values) {
        (known, None) => reql::apply(op, &known, &optargs, &cx.env()).map(Value::Datum),
        (known, Some(error)) => Err(reql::failed(op, &known, count, error, &optargs, &cx.env())),
    }
}
