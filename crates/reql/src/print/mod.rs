//! Prints functions and terms as RethinkDB 2.4 does: as source code for the JavaScript driver, on several lines.
//!
//! `index_status`, write hooks, `info` and the jobs table show queries this way. A term becomes a document
//! ([`source`], [`names`]), which is laid out on lines ([`layout`]).

mod layout;
mod names;
mod source;

use crate::term::{FuncTerm, Term};
use layout::laid_out;
use source::Source;

/// Line width of the body of a function, not counting the text around it.
const BODY_COLUMNS: usize = 80;
/// Line width of a query.
const QUERY_COLUMNS: usize = 89;

/// The source of a function: `function(var1) { return var1("a"); }`
#[must_use]
pub fn function(func: &FuncTerm) -> String {
    let params: Vec<String> = func.params.iter().map(|id| names::of_variable(*id)).collect();
    let body = laid_out(&Source::default().term(&func.body), BODY_COLUMNS);
    format!("function({}) {{ return {body}; }}", params.join(", "))
}

/// The source of a term.
#[must_use]
pub fn term(term: &Term) -> String {
    laid_out(&Source::default().term(term), QUERY_COLUMNS)
}
