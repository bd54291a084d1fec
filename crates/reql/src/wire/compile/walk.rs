//! Checks the structure of a whole query. RethinkDB does this before it compiles any part; here it runs only after
//! another error was found, so that the same error is reported.

use super::{Place, check_place, place_of_arg, place_of_optarg, read_raw};
use crate::backtrace::Frame;
use crate::deep;
use crate::error::CompileError;
use crate::signature::Op;
use crate::wire::tape::{Node, Value};

/// Fails at the first term that is malformed or not allowed at its place. Source: `term_walker_t` of RethinkDB.
pub(in crate::wire) fn check(root: Value<'_, '_>) -> Result<(), CompileError> {
    node(root, Place::default())
}

fn node(value: Value<'_, '_>, place: Place) -> Result<(), CompileError> {
    deep::level(|| match value.node() {
        Node::Object(_) => members(value, Place { ordering: false, ..place }),
        Node::Array(_) => raw_term(value, place),
        _ => Ok(()),
    })
}

fn raw_term(value: Value<'_, '_>, place: Place) -> Result<(), CompileError> {
    let raw = read_raw(value)?;
    if raw.op == Op::Datum {
        return Ok(());
    }
    check_place(raw.op, place)?;
    for (i, arg) in raw.args().enumerate() {
        node(arg, place_of_arg(raw.op, i, place)).map_err(|error| error.at(i))?;
    }
    raw.optargs.map_or(Ok(()), |optargs| members(optargs, place_of_optarg(raw.op, place)))
}

fn members(value: Value<'_, '_>, place: Place) -> Result<(), CompileError> {
    for (name, value) in value.members().into_iter().flatten() {
        node(value, place).map_err(|error| error.at(Frame::from(&datum::Text::from(&**name))))?;
    }
    Ok(())
}
