//! Checks the structure of a whole query. RethinkDB does this before it compiles any part; here it runs only after
//! another error was found, so that the same error is reported.

use super::{Context, check_context, context_of_arg, context_of_optarg, read_raw};
use crate::backtrace::Frame;
use crate::deep;
use crate::error::CompileError;
use crate::signature::Op;
use crate::wire::tape::{Node, Value};

/// Fails at the first term that is malformed or not allowed at its place. Source: `term_walker_t` of RethinkDB.
pub(in crate::wire) fn check(root: Value<'_, '_>) -> Result<(), CompileError> {
    node(root, Context::default())
}

fn node(value: Value<'_, '_>, context: Context) -> Result<(), CompileError> {
    deep::level(|| match value.node() {
        Node::Object(_) => members(value, Context { ordering: false, ..context }),
        Node::Array(_) => raw_term(value, context),
        _ => Ok(()),
    })
}

fn raw_term(value: Value<'_, '_>, context: Context) -> Result<(), CompileError> {
    let raw = read_raw(value)?;
    if raw.op == Op::Datum {
        return Ok(());
    }
    check_context(raw.op, context)?;
    for (i, arg) in raw.args().enumerate() {
        node(arg, context_of_arg(raw.op, i, context)).map_err(|error| error.at(i))?;
    }
    raw.optargs.map_or(Ok(()), |optargs| members(optargs, context_of_optarg(raw.op, context)))
}

fn members(value: Value<'_, '_>, context: Context) -> Result<(), CompileError> {
    for (name, value) in value.members().into_iter().flatten() {
        node(value, context).map_err(|error| error.at(Frame::from(&datum::Text::from(&**name))))?;
    }
    Ok(())
}
