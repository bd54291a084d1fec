//! Functions and terms as RethinkDB 2.4 shows them: the source a user of the JavaScript driver
//! would write, on lines.
//!
//! `index_status`, write hooks, `info` and the jobs table show queries this way. A term becomes a
//! document ([`source`], [`names`]), the document becomes lines ([`layout`]).

mod layout;
mod names;
mod source;

use crate::term::{FuncTerm, Term};
use layout::laid_out;
use source::Source;

/// How wide the body of a function is laid out; the words around it do not count.
const BODY_COLUMNS: usize = 80;
/// How wide a query is laid out.
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
