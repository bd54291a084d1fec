//! What is wrong with the shape of a query, wherever it stands. RethinkDB looks through all of it for that before it
//! compiles any of it; here it is looked for when something was found wrong, so that the same mistake is told.

use super::{Place, check_place, place_of_arg, place_of_optarg, read_raw};
use crate::backtrace::Frame;
use crate::deep;
use crate::error::CompileError;
use crate::signature::Op;
use crate::wire::tape::{Node, Value};

/// Fails with the first term that cannot be one or may not stand where it does.
/// Source: `term_walker_t` of RethinkDB.
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
