//! The arguments of a term, each evaluated when a term uses it.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use crate::evaluator::term_value::{Func, TermValue};
use crate::evaluator::{Evaluator, Scope, into_datum};
use crate::fault::{Fault, Out};
use crate::value::Val;

/// A term and its arguments.
pub struct Args<'a> {
    pub evaluator: &'a Evaluator,
    /// The number of the term.
    pub id: u64,
    /// The variables around it.
    pub scope: &'a Scope,
    /// Whether `literal` may be used in it.
    pub literals: bool,
    given: Vec<Given<'a>>,
    options: &'a Map<String, Json>,
}

/// An argument.
#[derive(Clone)]
enum Given<'a> {
    Term(&'a Json),
    Known(TermValue),
}

impl<'a> Args<'a> {
    /// The arguments; an `r.args` is replaced by the items of its array.
    pub fn new(
        evaluator: &'a Evaluator,
        id: u64,
        terms: &'a [Json],
        options: &'a Map<String, Json>,
        scope: &'a Scope,
        literals: bool,
    ) -> Out<Args<'a>> {
        let mut given = Vec::with_capacity(terms.len());
        for term in terms {
            match args_term(term) {
                None => given.push(Given::Term(term)),
                Some(inner) => match evaluator.datum(inner, scope)? {
                    Val::Array(items) => {
                        given.extend(items.into_iter().map(|item| Given::Known(TermValue::Datum(item))));
                    }
                    other => return Err(Fault::expected("ARRAY", &other)),
                },
            }
        }
        Ok(Args { evaluator, id, scope, literals, given, options })
    }

    /// The number of arguments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Whether there are no arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// The same term with a known first argument.
    #[must_use]
    pub fn with_first(&self, first: TermValue) -> Args<'a> {
        let mut given = self.given.clone();
        if let Some(place) = given.first_mut() {
            *place = Given::Known(first);
        }
        Args { given, ..*self }
    }

    /// The value of argument `i`.
    pub fn value(&self, i: usize) -> Out<TermValue> {
        let literals = self.literals && matches!(self.id, 2 | 3 | 65 | 92);
        self.value_with(i, literals)
    }

    /// The value of argument `i`, in which `literal` may be used.
    pub fn value_with(&self, i: usize, literals: bool) -> Out<TermValue> {
        match self.given.get(i) {
            None => Err(Fault::unspecified("too few arguments")),
            Some(Given::Known(value)) => Ok(value.clone()),
            Some(Given::Term(term)) => self.evaluator.eval(term, self.scope, literals),
        }
    }

    /// Argument `i` as a datum.
    pub fn datum(&self, i: usize) -> Out<Val> {
        into_datum(self.value(i)?)
    }

    /// Argument `i` as a number.
    pub fn number(&self, i: usize) -> Out<f64> {
        number(&self.datum(i)?)
    }

    /// Argument `i` as a whole number.
    pub fn whole(&self, i: usize) -> Out<i64> {
        whole(self.number(i)?)
    }

    /// Argument `i` as text.
    pub fn text(&self, i: usize) -> Out<String> {
        text(self.datum(i)?)
    }

    /// Argument `i` as an array.
    pub fn array(&self, i: usize) -> Out<Vec<Val>> {
        match self.datum(i)? {
            Val::Array(items) => Ok(items),
            other => Err(Fault::expected("ARRAY", &other)),
        }
    }

    /// Argument `i` as an object.
    pub fn object(&self, i: usize) -> Out<BTreeMap<String, Val>> {
        match self.datum(i)? {
            Val::Object(members) => Ok(members),
            other => Err(Fault::expected("OBJECT", &other)),
        }
    }

    /// Argument `i` as a function.
    pub fn func(&self, i: usize) -> Out<Func> {
        match self.value(i)? {
            TermValue::Func(func) => Ok(func),
            TermValue::Datum(Val::Null) | TermValue::Row(_, Val::Null) => {
                Err(Fault::missing("null for a function"))
            }
            other => Err(Fault::logic(format!("expected FUNCTION but found {}", other.type_of()))),
        }
    }

    /// Argument `i` as a function; a datum stands for a function with that result.
    pub fn constant(&self, i: usize) -> Out<Func> {
        match self.value(i)? {
            TermValue::Func(func) => Ok(func),
            TermValue::Datum(value) | TermValue::Row(_, value) => Ok(Func::Constant(value)),
            other => Err(Fault::logic(format!("expected FUNCTION but found {}", other.type_of()))),
        }
    }

    /// Argument `i` as a function; a datum names a field.
    pub fn selector(&self, i: usize) -> Out<Func> {
        match self.value(i)? {
            TermValue::Func(func) => Ok(func),
            other => match other {
                TermValue::Datum(field) | TermValue::Row(_, field) => Ok(Func::Field(field)),
                other => Err(Fault::logic(format!("expected FUNCTION but found {}", other.type_of()))),
            },
        }
    }

    /// An optional argument.
    pub fn option(&self, name: &str) -> Out<Option<Val>> {
        self.options.get(name).map(|term| self.evaluator.datum(term, self.scope)).transpose()
    }

    /// An optional argument of any kind.
    pub fn option_value(&self, name: &str) -> Out<Option<TermValue>> {
        self.options.get(name).map(|term| self.evaluator.eval(term, self.scope, false)).transpose()
    }

    /// The term of an optional argument.
    #[must_use]
    pub fn option_term(&self, name: &str) -> Option<&'a Json> {
        self.options.get(name)
    }

    /// The term of an argument, unless it is an item of `r.args`.
    #[must_use]
    pub fn term(&self, i: usize) -> Option<&'a Json> {
        match self.given.get(i) {
            Some(Given::Term(term)) => Some(term),
            _ => None,
        }
    }
}

/// A datum as a number.
pub fn number(value: &Val) -> Out<f64> {
    match value {
        Val::Number(n) => Ok(*n),
        other => Err(Fault::expected("NUMBER", other)),
    }
}

/// A number as a whole number.
pub fn whole(n: f64) -> Out<i64> {
    if n.fract() != 0.0 || n.abs() > 9_007_199_254_740_992.0 {
        return Err(Fault::logic("number not an integer"));
    }
    Ok(n as i64)
}

/// A datum as text.
pub fn text(value: Val) -> Out<String> {
    match value {
        Val::Text(text) => Ok(text),
        other => Err(Fault::expected("STRING", &other)),
    }
}

fn args_term(term: &Json) -> Option<&Json> {
    let parts = term.as_array()?;
    (parts.first()?.as_u64()? == 154).then(|| parts.get(1)?.get(0)).flatten()
}
