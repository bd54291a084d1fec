//! Which file evaluates which term.

use reql::{Arg, Call, EvalError, Op, Scope};

use crate::args::Args;
use crate::context::Cx;
use crate::term::sequence::Over;
use crate::term::{
    between, by_index, coerce, config, db, db_admin, get, get_all, grant, http, index, info, js, map,
    order_by, range, reconfigure, sequence, shapes, sync, table, table_admin, union, update, wait,
    write_hook,
};
use crate::value::Value;

/// Whether a term is one over a sequence, its first argument, that `reql` describes as an operation.
pub(super) fn is_over_sequence(call: &Call) -> bool {
    match call.op {
        Op::Map => call.args.len() == 2,
        Op::InnerJoin | Op::OuterJoin => false,
        op => reql::is_operation(op),
    }
}

/// Such a term.
pub(super) fn over_sequence(
    cx: &Cx,
    call: &Call,
    scope: &Scope<'_>,
    first: Value,
) -> Result<Value, EvalError> {
    let over = Over { cx, call, scope, first };
    match call.op {
        Op::OrderBy => order_by::order_by(over),
        Op::Min | Op::Max => by_index::extreme(over),
        Op::Distinct => by_index::distinct(over),
        Op::Group => by_index::group(over),
        Op::ConcatMap => map::concat_map(over),
        _ => sequence::apply(over),
    }
}

/// Any other term.
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
        _ => administration(args),
    }
}

fn administration(args: Args<'_>) -> Result<Value, EvalError> {
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
        Op::Changes => Err(EvalError::not_yet(args.op())),
        _ => leaf(args),
    }
}

/// `error`: raises what the query says.
fn raise(mut args: Args<'_>) -> Result<Value, EvalError> {
    match args.len() {
        0 => Err(EvalError::empty_error()),
        _ => Err(EvalError::user(args.string(0)?.to_string())),
    }
}

/// What a call fails with one of whose arguments failed with `error`, when those before it have `values`.
pub(super) fn failed(cx: &Cx, call: &Call, values: Vec<Value>, error: EvalError) -> EvalError {
    let known = |value| match value {
        Value::Datum(value) => Some(Arg::Datum(value)),
        _ => None,
    };
    match values.into_iter().map(known).collect::<Option<Vec<_>>>() {
        // The term's own options have no values here.
        Some(values) if call.optargs.is_empty() => {
            reql::failed(call.op, &values, call.args.len(), error, &[], &cx.env())
        }
        _ => error,
    }
}

/// A term that uses only its arguments, which were found in tables.
fn leaf(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (cx, op) = (args.cx, args.op());
    let mut optargs = Vec::with_capacity(args.call.optargs.len());
    for (name, _) in &args.call.optargs {
        optargs.extend(args.optional_datum(name)?.map(|value| (name.clone(), value)));
    }
    let count = args.len();
    let mut values = Vec::with_capacity(count);
    for i in 0..count {
        match args.take(i)? {
            Value::Func(closure) => values.push(Arg::Func(closure)),
            other => match other.into_datum(cx) {
                Ok(value) => values.push(Arg::Datum(value)),
                Err(error) => return Err(reql::failed(op, &values, count, error.at(i), &optargs, &cx.env())),
            },
        }
    }
    reql::apply(op, &values, &optargs, &cx.env()).map(Value::Datum)
}
