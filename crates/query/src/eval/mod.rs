//! Evaluates open terms, whose arguments may be tables, streams and rows, in RethinkDB's order. `reql` evaluates closed
//! terms.

mod control;
mod dispatch;
mod each;
mod grouped;

use datum::Datum;
use reql::{Call, Closure, EvalError, Op, OpenTerms, OpenValue, Scope, Term};

use crate::context::Cx;
use crate::term::{changes, eq_join, insert, join, order_by, sequence, update};
use crate::value::{Args, Grouped, Value};

/// Stack that must be free before the next level is entered.
const RED_ZONE_BYTES: usize = 64 << 10;
/// Stack that is added each time.
const SEGMENT_BYTES: usize = 1 << 20;

impl Cx {
    /// The value of `term` with the variables of `scope`.
    pub(crate) fn eval(&self, term: &Term, scope: &Scope<'_>) -> Result<Value, EvalError> {
        match term {
            Term::Datum(datum) => Ok(Value::Datum(datum.clone())),
            Term::Call(call) if call.traits.open => {
                stacker::maybe_grow(RED_ZONE_BYTES, SEGMENT_BYTES, || self.open_call(call, scope))
            }
            closed => reql::eval_value(closed, scope, &self.env()).map(Value::of_closed),
        }
    }

    /// The value of `term` as a datum.
    pub(crate) fn eval_datum(&self, term: &Term, scope: &Scope<'_>) -> Result<Datum, EvalError> {
        self.eval(term, scope)?.into_datum(self)
    }

    /// The result of a function, which may be more than a datum.
    pub(crate) fn call_value(&self, closure: &Closure, values: &[Datum]) -> Result<Value, EvalError> {
        if let Some(foreign) = closure.as_foreign() {
            return foreign.call(values, &self.env()).map(Value::Datum);
        }
        closure.check_arity(values.len())?;
        let func = &closure.func;
        let values = if func.params.is_empty() { &[] } else { values };
        let scope = Scope::of_call(&func.params, values, &closure.captured);
        self.eval(&func.body, &scope).map_err(|error| error.at(1).anchored(func.path.as_ref()))
    }

    fn open_call(&self, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
        self.check_cancel()?;
        if call.traits.splices {
            if matches!(call.op, Op::Update | Op::Replace) {
                update::check_before_splicing(self, call, scope)?;
            }
            let spliced = reql::splice(call, scope, &self.env())?;
            return self.plain_call(&spliced, scope);
        }
        self.plain_call(call, scope)
    }

    /// Evaluates a call without `r.args`.
    fn plain_call(&self, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
        match call.op {
            Op::Funcall => control::funcall(self, call, scope),
            Op::Branch => control::branch(self, call, scope),
            Op::And | Op::Or => control::and_or(self, call, scope),
            Op::Default => control::default(self, call, scope),
            op if reql::op::is_comparison(op) => control::compare(self, call, scope),
            Op::Args => control::args(self, call, scope),
            // `reql` evaluates it where it is legal.
            Op::Literal => Err(reql::op::merge::stray_literal()),
            Op::MakeArray => control::make_array(self, call, scope),
            Op::MakeObj => control::make_obj(self, call, scope),
            Op::ForEach => each::for_each(self, call, scope),
            Op::Update | Op::Replace => update::update(self, call, scope),
            Op::Insert => insert::insert(self, call, scope),
            Op::InnerJoin | Op::OuterJoin => join::join(self, call, scope),
            Op::EqJoin => eq_join::eq_join(self, call, scope),
            Op::Changes => changes::changes(self, call, scope),
            op if dispatch::is_over_sequence(call) => {
                if op == Op::Limit
                    && let Some(first) = order_by::first_of_ordered(self, call, scope)
                {
                    return first;
                }
                let Some(first) = call.args.first() else {
                    return Err(EvalError::internal(format!("{} without arguments", op.name())));
                };
                let first = self.eval(first, scope).map_err(|error| error.at(0))?;
                self.apply_to(call, scope, first)
            }
            _ => {
                let values = self.eval_args(call, scope)?;
                match values.first() {
                    Some(Value::Grouped(groups)) if grouped::is_per_group(call.op, groups) => {
                        grouped::each(self, call, scope, values)
                    }
                    _ => dispatch::apply(Args::new(self, call, scope, values)),
                }
            }
        }
    }

    /// Applies a term that evaluates its own arguments to groups, after the first of them turned out to be grouped.
    pub(crate) fn call_per_group(
        &self,
        call: &Call,
        scope: &Scope<'_>,
        groups: Grouped,
    ) -> Result<Value, EvalError> {
        grouped::again(self, call, scope, groups)
    }

    /// Evaluates a term on a sequence whose first argument was evaluated.
    pub(crate) fn apply_to(&self, call: &Call, scope: &Scope<'_>, first: Value) -> Result<Value, EvalError> {
        let evaluated = match call.op {
            Op::Difference => match sequence::difference_evaluated(self, call, scope, &first)? {
                Ok(call) => Some(call),
                Err(error) if matches!(first, Value::Grouped(_)) => return Err(error),
                Err(error) => {
                    let failing = reql::difference_that_fails(error)?;
                    return sequence::applied(self, call.op, first, failing);
                }
            },
            _ => None,
        };
        let call = evaluated.as_ref().unwrap_or(call);
        match first {
            Value::Grouped(groups) => grouped::apply(self, call, scope, groups),
            first => dispatch::over_sequence(self, call, scope, first),
        }
    }

    /// Evaluates the positional arguments of `call`.
    fn eval_args(&self, call: &Call, scope: &Scope<'_>) -> Result<Vec<Value>, EvalError> {
        let mut values = Vec::with_capacity(call.args.len());
        for (i, arg) in call.args.iter().enumerate() {
            match self.eval(arg, scope) {
                Ok(value) => values.push(dispatch::checked_argument(self, call, i, value)?),
                Err(error) => return Err(dispatch::failed(self, call, values, error.at(i))),
            }
        }
        Ok(values)
    }
}

impl OpenTerms for Cx {
    fn eval_open(&self, call: &Call, scope: &Scope<'_>) -> Result<OpenValue, EvalError> {
        let value = stacker::maybe_grow(RED_ZONE_BYTES, SEGMENT_BYTES, || self.open_call(call, scope))?;
        match value {
            Value::Datum(datum) => Ok(OpenValue::Datum(datum)),
            Value::Row(row) => row.into_datum(self).map(OpenValue::Row),
            other => Ok(match other.as_foreign() {
                Some(code) => OpenValue::Func(code),
                None => OpenValue::Other { kind: other.kind(), printed: other.print() },
            }),
        }
    }
}
