//! Stored functions, which outlive their query: index functions and write hooks in a table's configuration.
//!
//! A stored function has two forms. Its text is a FUNC term in its wire form, in which variables captured from enclosing functions
//! are replaced with their values: it is what runs. Its binary is the form of RethinkDB ([`binary`]), which clients get and may
//! give back. It has more than the text, such as the numbers of terms and `r.row`, so that it is stored where it does not follow
//! from the text.

mod binary;
mod capture;
mod fill;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use datum::{Bytes, Text};

use self::binary::{Content, Function};
use crate::backtrace::TermPath;
use crate::closure::Closure;
use crate::cost::{self, Cost};
use crate::error::{CompileError, EvalError};
use crate::print;
use crate::term::{FuncTerm, Term, VarId};
use crate::wire;
use crate::wire::numbered;

pub use self::binary::IndexFlags;

/// Longest text and longest binary of a function that a client may store. Every server of a cluster keeps it in memory, and every
/// copy of the catalog contains it.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// A function without free variables, and its forms.
#[derive(Clone)]
pub struct StoredFunc {
    text: Text,
    /// RethinkDB's form, without prefix and flags.
    binary: Bytes,
    /// Whether the binary is made from the text.
    follows: bool,
    func: Arc<FuncTerm>,
    cost: Cost,
}

/// The function and the flags of an index.
#[derive(Clone, Debug)]
pub struct IndexFunc {
    pub function: StoredFunc,
    pub flags: IndexFlags,
}

impl StoredFunc {
    /// Makes a stored function from `closure`, a function of the query with the text `query`.
    ///
    /// Its captured variables are replaced by their values. Without `query`, its binary is made from its text. Fails if one of its
    /// forms is longer than [`TEXT_BYTES_MAX`], which a small value with shared parts can cause, or if it has no wire form, as a
    /// function in another language.
    pub fn of_closure(closure: &Closure, query: Option<&Text>) -> Result<StoredFunc, EvalError> {
        let captured = query.zip(closure.func.path.as_deref());
        let function = captured.map(|(query, path)| capture::function(closure, query, path)).transpose()?;
        match function.flatten() {
            Some(function) => StoredFunc::of_function(&function),
            None => StoredFunc::of_term(&fill::filled(&closure.func, &closure.captured)),
        }
    }

    /// The function of an index that is created without one: the field with its name.
    ///
    /// `path` is that of the term that creates the index in `query`, the text of its query.
    pub fn of_field(
        name: &Text,
        query: Option<&Text>,
        path: Option<&TermPath>,
    ) -> Result<StoredFunc, EvalError> {
        let place = query.zip(path).and_then(|(query, path)| numbered::place_in_query(query, path));
        StoredFunc::of_function(&capture::field(name, place.unwrap_or_default()))
    }

    /// The function and flags in a binary of `index_status`, of RethinkDB or of ours. Fails with RethinkDB's error if it is none.
    pub fn of_index_binary(blob: &[u8]) -> Result<IndexFunc, EvalError> {
        let (content, flags) = binary::read_index(blob)?;
        let function = match content {
            Content::Function(function) => StoredFunc::of_function(&function)?,
            Content::JavaScript => {
                let why = "Could not prove function deterministic.  Index functions must be deterministic.";
                return Err(EvalError::logic(why));
            }
            Content::Text(text) => {
                check_size(text)?;
                StoredFunc::of_earlier_text(text).map_err(|why| binary::uninterpretable(&why))?
            }
        };
        Ok(IndexFunc { function, flags })
    }

    /// The function in a binary of `get_write_hook`, of RethinkDB or of ours. Fails with RethinkDB's error if it is none.
    pub fn of_hook_binary(blob: &[u8]) -> Result<StoredFunc, EvalError> {
        check_size(blob)?;
        match binary::read_hook(blob)? {
            Content::Function(function) => StoredFunc::of_function(&function),
            Content::JavaScript => {
                let why =
                    "Could not prove function deterministic.  Write hook functions must be deterministic.";
                Err(EvalError::logic(why))
            }
            Content::Text(text) => StoredFunc::of_earlier_text(text).map_err(|_| binary::not_a_hook()),
        }
    }

    /// Parses the text of a stored function. Fails unless it is a single FUNC term without free variables. Longer functions than
    /// [`TEXT_BYTES_MAX`] were stored before this limit existed.
    pub fn parse(text: Text) -> Result<StoredFunc, CompileError> {
        let term = wire::parse_term(text.as_bytes())?;
        let bytes = || capture::of_text(&text)?.write(i32::MAX as usize);
        match (term, bytes()) {
            (Term::Func(func), Some(bytes)) => {
                let (binary, cost) = (Bytes::from(bytes), cost::of_func(&func));
                Ok(StoredFunc { text, binary, follows: true, func, cost })
            }
            _ => Err(CompileError::compile("Expected a FUNC term.")),
        }
    }

    /// The same function with the bytes of [`StoredFunc::stored_binary`].
    #[must_use]
    pub fn with_binary(self, binary: Bytes) -> StoredFunc {
        StoredFunc { follows: binary == self.binary, binary, ..self }
    }

    /// The text: the wire form of the function.
    #[must_use]
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// The binary to be stored beside the text, without prefix and flags; `None` if it follows from the text.
    #[must_use]
    pub fn stored_binary(&self) -> Option<&Bytes> {
        (!self.follows).then_some(&self.binary)
    }

    /// The binary of an index with this function, as RethinkDB 2.4 writes it.
    #[must_use]
    pub fn index_binary(&self, flags: IndexFlags) -> Bytes {
        binary::write_index(&self.binary, flags)
    }

    /// The binary of a write hook with this function, as RethinkDB 2.4 writes it.
    #[must_use]
    pub fn hook_binary(&self) -> Bytes {
        binary::write_hook(&self.binary)
    }

    /// The function.
    #[must_use]
    pub fn func(&self) -> &Arc<FuncTerm> {
        &self.func
    }

    /// The cost of a call.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The source of the function, as RethinkDB shows it: a function with captured variables is not printed.
    #[must_use]
    pub fn source(&self) -> String {
        match binary::has_captured(&self.binary) {
            true => "non-printable function (captured scope not empty)".to_owned(),
            false => print::function(&self.sent().unwrap_or_else(|| self.func.clone())),
        }
    }

    /// The function as it was sent, to be printed.
    fn sent(&self) -> Option<Arc<FuncTerm>> {
        let function = binary::read_function(&self.binary)?;
        let text = text_of(&function).ok()?;
        let (around, _) = capture::scope(&function);
        match wire::parse_term_for_print(text.as_bytes(), around) {
            Ok(Term::Func(func)) => Some(func),
            _ => None,
        }
    }

    /// The function with this text, which a client provides. Fails with the reason.
    ///
    /// Its texts are many, with spaces and explicit datums, but its binary has one: the function is that of its binary.
    fn of_earlier_text(text: &[u8]) -> Result<StoredFunc, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
        let sent = StoredFunc::parse(text.into()).map_err(|error| error.to_string())?;
        let written = StoredFunc::of_term(&sent.func).map_err(|error| error.message())?;
        let function = capture::of_text(&written.text).ok_or("it is not a function")?;
        StoredFunc::of_function(&function).map_err(|error| error.message())
    }

    /// A function as it is stored by RethinkDB.
    fn of_function(function: &Function) -> Result<StoredFunc, EvalError> {
        let binary = function.write(TEXT_BYTES_MAX).ok_or_else(too_large)?;
        let stored = StoredFunc::of_term(&compiled(function)?)?;
        Ok(stored.with_binary(Bytes::from(binary)))
    }

    /// A function without free variables.
    fn of_term(func: &Arc<FuncTerm>) -> Result<StoredFunc, EvalError> {
        let text = wire::write_term(&Term::Func(func.clone()), TEXT_BYTES_MAX).ok_or_else(too_large)?;
        let text = String::from_utf8(text).map_err(|_| EvalError::internal("a function has no text"))?;
        StoredFunc::parse(text.into()).map_err(|error| EvalError::internal(error.to_string()))
    }
}

/// Compiles a function, and replaces its captured variables with their values.
fn compiled(function: &Function) -> Result<Arc<FuncTerm>, EvalError> {
    let text = text_of(function)?;
    let (around, values) = capture::scope(function);
    let term = wire::parse_term_within(text.as_bytes(), around);
    let Term::Func(func) = term.map_err(|error| EvalError::logic(error.to_string()))? else {
        return Err(binary::insane("it is not a function"));
    };
    let is_known = |id: &VarId| values.iter().any(|(known, _)| known == id);
    match func.captures.iter().all(is_known) {
        true => Ok(fill::filled(&func, &values)),
        false => Err(binary::insane("`r.row` of an enclosing function has no value")),
    }
}

/// The wire form of a function, which may use variables of enclosing ones.
fn text_of(function: &Function) -> Result<String, EvalError> {
    let body = numbered::wire_form(&function.tree).map_err(binary::insane)?;
    let params: Vec<String> = function.params.iter().map(|id| id.0.to_string()).collect();
    Ok(format!("[69,[[2,[{}]],{body}]]", params.join(",")))
}

/// Fails if bytes that a client provides exceed [`TEXT_BYTES_MAX`].
fn check_size(bytes: &[u8]) -> Result<(), EvalError> {
    if bytes.len() > TEXT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
}

impl PartialEq for StoredFunc {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.binary == other.binary
    }
}

impl fmt::Debug for StoredFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoredFunc").field(&self.text).field(&self.binary).finish()
    }
}

fn too_large() -> EvalError {
    let most = TEXT_BYTES_MAX >> 20;
    EvalError::resource(format!(
        "The function is too large to be stored: its text, with the values that it uses, has more than {most} MiB."
    ))
}
