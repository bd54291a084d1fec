//! The variables in scope where a term is evaluated.

use datum::Datum;

use crate::term::VarId;

/// Bindings, innermost first. Lives on the stack of the evaluator; closures copy the values they use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    params: &'a [VarId],
    values: &'a [Datum],
    captured: &'a [(VarId, Datum)],
    outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    /// No variables at all.
    #[must_use]
    pub const fn empty() -> Self {
        Scope { params: &[], values: &[], captured: &[], outer: None }
    }

    /// The scope of a function's body: its arguments and captured variables.
    #[must_use]
    pub fn of_call(params: &'a [VarId], values: &'a [Datum], captured: &'a [(VarId, Datum)]) -> Self {
        Scope { params, values, captured, outer: None }
    }

    /// Extends this scope with inner variables.
    #[must_use]
    pub fn inner(&'a self, params: &'a [VarId], values: &'a [Datum]) -> Scope<'a> {
        Scope { params, values, captured: &[], outer: Some(self) }
    }

    /// The value bound to `id`.
    #[must_use]
    pub fn get(&self, id: VarId) -> Option<&'a Datum> {
        if let Some(position) = self.params.iter().position(|param| *param == id) {
            return self.values.get(position);
        }
        if let Some((_, value)) = self.captured.iter().find(|(name, _)| *name == id) {
            return Some(value);
        }
        self.outer.and_then(|outer| outer.get(id))
    }
}
