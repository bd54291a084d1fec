//! The variables that a term can name.

use std::rc::Rc;

use crate::value::Val;

/// The variables in the scope of a term.
#[derive(Clone, Debug, Default)]
pub struct Scope(Option<Rc<Binding>>);

#[derive(Debug)]
struct Binding {
    name: i64,
    value: Val,
    outer: Scope,
}

impl Scope {
    /// This scope with one more variable.
    #[must_use]
    pub fn with(&self, name: i64, value: Val) -> Scope {
        Scope(Some(Rc::new(Binding { name, value, outer: self.clone() })))
    }

    pub(super) fn get(&self, name: i64) -> Option<Val> {
        let binding = self.0.as_ref()?;
        if binding.name == name { Some(binding.value.clone()) } else { binding.outer.get(name) }
    }
}
