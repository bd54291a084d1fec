//! Stored functions, which outlive their query: index functions and write hooks in a table's configuration.
//!
//! A stored function is the text of a FUNC term in its wire form. Variables captured from enclosing functions are
//! replaced with their values.

use std::fmt;
use std::sync::Arc;

use datum::{Datum, Text};

use crate::closure::Closure;
use crate::cost::{self, Cost};
use crate::deep;
use crate::error::{CompileError, EvalError};
use crate::term::{Call, FuncTerm, Term, VarId};
use crate::wire;

/// Longest text of a function that a client may store. Every server of a cluster keeps it in memory, and every copy
/// of the catalog contains it.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// A function without free variables, and its text.
#[derive(Clone)]
pub struct StoredFunc {
    text: Text,
    func: Arc<FuncTerm>,
    cost: Cost,
}

impl StoredFunc {
    /// Makes a stored function from `closure`, with its captured variables replaced by their values.
    ///
    /// Fails if its text is longer than [`TEXT_BYTES_MAX`], which a small value with shared parts can cause, or has
    /// no wire form, as a function in another language.
    pub fn of_closure(closure: &Closure) -> Result<StoredFunc, EvalError> {
        let term = match closure.captured.is_empty() {
            true => Term::Func(closure.func.clone()),
            false => Term::Func(filled(&closure.func, &closure.captured)),
        };
        let text = wire::write_term(&term, TEXT_BYTES_MAX).ok_or_else(too_large)?;
        let text = String::from_utf8(text).map_err(|_| EvalError::internal("a function has no text"))?;
        StoredFunc::parse(text.into()).map_err(|error| EvalError::internal(error.to_string()))
    }

    /// Fails if `text`, which a client provides, exceeds [`TEXT_BYTES_MAX`]. [`StoredFunc::parse`] still reads
    /// longer functions that were stored before this limit existed.
    pub fn check_size(text: &[u8]) -> Result<(), EvalError> {
        if text.len() > TEXT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
    }

    /// Parses a stored function. Fails unless the text is a single FUNC term without free variables.
    pub fn parse(text: Text) -> Result<StoredFunc, CompileError> {
        match wire::parse_term(text.as_bytes())? {
            Term::Func(func) => Ok(StoredFunc { text, cost: cost::of_func(&func), func }),
            _ => Err(CompileError::compile("Expected a FUNC term.")),
        }
    }

    /// The wire form of the function.
    #[must_use]
    pub fn text(&self) -> &Text {
        &self.text
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
}

impl PartialEq for StoredFunc {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for StoredFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoredFunc").field(&self.text).finish()
    }
}

fn too_large() -> EvalError {
    let most = TEXT_BYTES_MAX >> 20;
    EvalError::resource(format!(
        "The function is too large to be stored: its text, with the values that it uses, has more than {most} MiB."
    ))
}

/// Replaces the variables of `values` in `func` with their values.
fn filled(func: &FuncTerm, values: &[(VarId, Datum)]) -> Arc<FuncTerm> {
    let free: Vec<(VarId, Datum)> =
        values.iter().filter(|(id, _)| !func.params.contains(id)).cloned().collect();
    Arc::new(FuncTerm {
        params: func.params.clone(),
        body: filled_term(&func.body, &free),
        captures: func
            .captures
            .iter()
            .filter(|id| !free.iter().any(|(name, _)| name == *id))
            .copied()
            .collect(),
        closed: func.closed,
        path: None,
    })
}

fn filled_term(term: &Term, values: &[(VarId, Datum)]) -> Term {
    deep::level(|| match term {
        Term::Datum(_) => term.clone(),
        Term::Var(id) => match values.iter().find(|(name, _)| name == id) {
            Some((_, value)) => Term::Datum(value.clone()),
            None => Term::Var(*id),
        },
        Term::Func(func) => Term::Func(filled(func, values)),
        Term::Call(call) => Term::Call(Box::new(Call {
            op: call.op,
            args: call.args.iter().map(|arg| filled_term(arg, values)).collect(),
            optargs: call
                .optargs
                .iter()
                .map(|(name, arg)| (name.clone(), filled_term(arg, values)))
                .collect(),
            traits: call.traits,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure::ResultKind;
    use crate::eval::closure;
    use crate::scope::Scope;

    #[test]
    fn captured_variables_become_values() {
        // `x => (y => [x, y, (x => x)(y)])` with x bound to `{a: [1]}`.
        let text = br#"[69,[[2,[2]],[2,[[10,[1]],[10,[2]],[64,[[69,[[2,[1]],[10,[1]]]],[10,[2]]]]]]]]"#;
        let outer = [br"[69,[[2,[1]],".as_slice(), text, b"]]"].concat();
        let Ok(Term::Func(outer)) = wire::parse_term(&outer) else { panic!("a function") };
        let Term::Func(inner) = &outer.body else { panic!("a function in it") };
        let Ok(bound) = datum::json::parse(br#"{"a":[1]}"#) else { panic!("json") };
        let values = [bound];
        let scope = Scope::of_call(&outer.params, &values, &[]);
        let closed = closure(inner, &scope, ResultKind::Datum).expect("x is bound");
        let stored = StoredFunc::of_closure(&closed).expect("it has a text");
        assert_eq!(
            stored.text(),
            r#"[69,[[2,[2]],[2,[{"a":[2,[1]]},[10,[2]],[64,[[69,[[2,[1]],[10,[1]]]],[10,[2]]]]]]]]"#
        );
        assert!(stored.func().captures.is_empty());
        assert_eq!(StoredFunc::parse(stored.text().clone()).expect("it can be read"), stored);
    }

    #[test]
    fn text_that_is_not_a_function_is_refused() {
        for text in ["", "1", "[17,[1,1]]", "[69,[[2,[1]],[10,[2]]]]"] {
            assert!(StoredFunc::parse(Text::from(text)).is_err(), "{text}");
        }
    }
}
