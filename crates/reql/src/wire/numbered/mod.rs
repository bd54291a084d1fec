//! Term trees as RethinkDB stores them: the wire form in which each term ends with a number.
//!
//! RethinkDB numbers the terms of a query in the order in which it visits them, and stores a function with the numbers of
//! the query that created it. The trees of a query are made here from its text, letter for letter: the compiled terms have
//! lost the order of members, the spelling of numbers, and `r.row`.
//!
//! Source: RethinkDB 2.4, rdb_protocol/term_walker.cc and rdb_protocol/term_storage.cc.

mod free;
mod parts;
mod place;
mod read;
#[cfg(test)]
mod tests;
mod write;

use datum::Text;

use super::tape::{Tape, Value};
use crate::backtrace::TermPath;
use crate::signature::Op;
use crate::term::VarId;
use parts::{op_of, params_of};
use place::Found;
use write::Numbers;

pub(crate) use free::FreeVariables;
pub(crate) use place::Place;
pub(crate) use read::wire_form;
pub(crate) use write::{double_text, json_text};

/// A function, as RethinkDB stores it.
pub(crate) struct NumberedFunc {
    pub params: Vec<VarId>,
    /// The tree of its body.
    pub tree: Text,
    /// The number of its body.
    pub number: u32,
    /// The variables of enclosing functions that it uses.
    pub free: FreeVariables,
    /// The place of the function.
    pub place: Place,
}

/// Why a text has no numbered function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoFunc {
    /// There is none at this place.
    Missing,
    /// Its tree has too many bytes.
    TooLarge,
}

/// The function at `path` in a query with this text.
pub(crate) fn func_of_query(query: &str, path: &TermPath, bytes_max: usize) -> Result<NumberedFunc, NoFunc> {
    let tape = Tape::parse(query).map_err(|_| NoFunc::Missing)?;
    let found = term_of(&tape).and_then(|term| place::find(term, path)).ok_or(NoFunc::Missing)?;
    let number = found.place.number.saturating_add(1);
    func(found, bytes_max, |params| Numbers::From(number.saturating_add(params)))
}

/// The function with this text in wire form, with zero as the number of all its terms.
pub(crate) fn func_of_text(text: &str, bytes_max: usize) -> Result<NumberedFunc, NoFunc> {
    let tape = Tape::parse(text).map_err(|_| NoFunc::Missing)?;
    func(Found::root(tape.root()), bytes_max, |_| Numbers::Zero)
}

/// The place of the term at `path` in a query with this text.
pub(crate) fn place_in_query(query: &str, path: &TermPath) -> Option<Place> {
    let tape = Tape::parse(query).ok()?;
    place::find(term_of(&tape)?, path).map(|found| found.place)
}

/// The term of a query, which begins with the number of its type.
fn term_of<'t, 'a>(query: &'t Tape<'a>) -> Option<Value<'t, 'a>> {
    query.root().items()?.nth(1)
}

/// `numbers` gets the number of terms that declare the parameters, which come before the body.
fn func(
    found: Found<'_, '_>,
    bytes_max: usize,
    numbers: impl FnOnce(u32) -> Numbers,
) -> Result<NumberedFunc, NoFunc> {
    let mut args = parts::Parts::of(found.term).args();
    let (Some(Op::Func), Some(declared), Some(body)) = (op_of(found.term), args.next(), args.next()) else {
        return Err(NoFunc::Missing);
    };
    let numbers = numbers(place::count(declared));
    let tree = write::tree(body, numbers, bytes_max).ok_or(NoFunc::TooLarge)?;
    Ok(NumberedFunc {
        params: params_of(found.term),
        tree: Text::from(String::from_utf8(tree).map_err(|_| NoFunc::Missing)?),
        number: numbers.first(),
        free: free::of_func(found.term),
        place: found.place,
    })
}
