//! Evaluates a query. Slow by intention: it copies every value, and every sequence is a list.

pub mod args;
mod scope;
pub mod term_value;
pub mod terms;

use std::cell::{Cell, RefCell};

use serde_json::{Map, Value as Json};

use crate::database::Database;
use crate::fault::{Fault, Out};
use crate::value::Val;
use args::Args;
pub use scope::Scope;
use term_value::{Func, Groups, TermValue};

/// The variable of `r.row`.
pub const ROW: i64 = i64::MIN;
/// The most terms that a query may evaluate to get a verdict.
const STEPS_MAX: u64 = 60_000;

/// The most items an array may have unless a query says otherwise.
pub const ARRAY_LIMIT_DEFAULT: usize = 100_000;

/// Evaluates one query in one possible order of all unordered items.
pub struct Evaluator {
    /// The tables; a write changes them.
    pub database: RefCell<Database>,
    /// The number of the order: 0 is the order of the tables, 1 the reverse, others are shuffled.
    pub order: u64,
    shuffles: Cell<u64>,
    asked: Cell<bool>,
    steps: Cell<u64>,
    array_limit: Cell<usize>,
}

impl Evaluator {
    /// An evaluator over `database` with this order of unordered items, and arrays of at most `array_limit` items.
    #[must_use]
    pub fn new(database: Database, order: u64, array_limit: usize) -> Evaluator {
        Evaluator {
            database: RefCell::new(database),
            order,
            shuffles: Cell::new(0),
            asked: Cell::new(false),
            steps: Cell::new(0),
            array_limit: Cell::new(array_limit),
        }
    }

    /// `items` in one of their possible orders.
    #[must_use]
    pub fn shuffled<T>(&self, mut items: Vec<T>) -> Vec<T> {
        self.asked.set(self.asked.get() || items.len() > 1);
        match self.order {
            0 => {}
            1 => items.reverse(),
            _ => {
                for i in (1..items.len()).rev() {
                    items.swap(i, self.draw(i + 1));
                }
            }
        }
        items
    }

    /// A number below `limit` that depends on the order; 0 in the first.
    pub fn draw(&self, limit: usize) -> usize {
        self.asked.set(true);
        if self.order == 0 || limit == 0 {
            return 0;
        }
        (self.mixed() % limit as u64) as usize
    }

    /// Whether another order could lead to another result.
    #[must_use]
    pub fn depends_on_order(&self) -> bool {
        self.asked.get()
    }

    /// A random number: another one at each call and in each order.
    #[must_use]
    pub fn chance(&self) -> u64 {
        self.asked.set(true);
        self.mixed()
    }

    /// A hash of the order's number and of the number of calls so far. A draw of one order tells nothing about the same
    /// draw of another.
    /// Source: SplitMix64 (Steele, Lea, Flood, 2014).
    fn mixed(&self) -> u64 {
        self.shuffles.set(self.shuffles.get() + 1);
        let state = ((self.order + 1) << 32 | self.shuffles.get()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        state ^ (state >> 31)
    }

    /// The time of the query: constant within a query, another one in each order.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.asked.set(true);
        1_700_000_000.0 + self.order as f64 * 1_000.25
    }

    /// Fails if an array may not have this number of items.
    pub fn fits(&self, count: usize) -> Out<()> {
        if self.exceeds(count) { Err(Fault::resource("an array over the size limit")) } else { Ok(()) }
    }

    /// Whether an array may not have this number of items.
    #[must_use]
    pub fn exceeds(&self, count: usize) -> bool {
        count > self.array_limit.get()
    }

    /// The most items an array may have.
    #[must_use]
    pub fn array_limit(&self) -> usize {
        self.array_limit.get()
    }

    /// An array that the query makes.
    pub fn array(&self, items: Vec<Val>) -> Out<Val> {
        self.fits(items.len())?;
        Ok(Val::Array(items))
    }

    /// Runs `evaluate` with the array limit of indexes instead of the query's.
    pub fn with_default_limit<T>(&self, evaluate: impl FnOnce() -> T) -> T {
        let own = self.array_limit.replace(ARRAY_LIMIT_DEFAULT);
        let answer = evaluate();
        self.array_limit.set(own);
        answer
    }

    pub fn eval(&self, term: &Json, scope: &Scope, literals: bool) -> Out<TermValue> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX {
            return Err(Fault::unspecified("too long"));
        }
        match term {
            Json::Array(parts) => self.call(parts, scope, literals),
            Json::Object(members) => self.make_object(members, scope, literals),
            scalar => Ok(TermValue::Datum(Val::of_json(scalar))),
        }
    }

    pub fn datum(&self, term: &Json, scope: &Scope) -> Out<Val> {
        into_datum(self.eval(term, scope, false)?)
    }

    fn make_object(&self, members: &Map<String, Json>, scope: &Scope, literals: bool) -> Out<TermValue> {
        let mut out = std::collections::BTreeMap::new();
        for (name, term) in members {
            out.insert(name.clone(), into_datum(self.eval(term, scope, literals)?)?);
        }
        match out.get("$reql_type$") {
            None => Ok(TermValue::Datum(Val::Object(out))),
            Some(Val::Text(kind)) if is_whole(kind, &out) => {
                Ok(TermValue::Datum(Val::of_json(&Val::Object(out).to_json())))
            }
            Some(_) => Err(Fault::unspecified("a strange pseudotype")),
        }
    }

    fn call(&self, parts: &[Json], scope: &Scope, literals: bool) -> Out<TermValue> {
        let none = (Vec::new(), Map::new());
        let id = parts.first().and_then(Json::as_u64).unwrap_or(0);
        let args = parts.iter().find_map(Json::as_array).unwrap_or(&none.0);
        let options = parts.iter().find_map(Json::as_object).unwrap_or(&none.1);
        match (id, args.as_slice()) {
            (10, [name]) => self.variable(name.as_i64().unwrap_or(0), scope),
            (1, [constant]) => Ok(TermValue::Datum(Val::of_json(constant))),
            (3, []) => self.make_object(options, scope, literals),
            (13, _) => self.variable(ROW, scope),
            (69, [params, body]) => {
                let params =
                    params[1].as_array().map(|names| names.iter().filter_map(Json::as_i64).collect());
                Ok(TermValue::Func(Func::Code(params.unwrap_or_default(), body.clone(), scope.clone())))
            }
            _ => terms::call(Args::new(self, id, args, options, scope, literals)?),
        }
    }

    fn variable(&self, name: i64, scope: &Scope) -> Out<TermValue> {
        scope.get(name).map(TermValue::Datum).ok_or_else(|| Fault::unspecified("unbound variable"))
    }

    /// The result of a function.
    pub fn call_func(&self, func: &Func, values: &[Val], literals: bool) -> Out<TermValue> {
        match func {
            Func::Constant(value) => Ok(TermValue::Datum(value.clone())),
            Func::Field(name) => terms::get_field(self, &values[0], name).map(TermValue::Datum),
            Func::Code(params, body, scope) => {
                if !params.is_empty() && params.len() != values.len() {
                    return Err(Fault::logic("wrong number of arguments for a function"));
                }
                let bind = |scope: Scope, (name, value): (&i64, &Val)| scope.with(*name, value.clone());
                let outer = match values {
                    [only] => scope.with(ROW, only.clone()),
                    _ => scope.clone(),
                };
                let scope = params.iter().zip(values).fold(outer, bind);
                self.eval(body, &scope, literals)
            }
        }
    }

    /// The result of a function as a datum.
    pub fn call_datum(&self, func: &Func, values: &[Val]) -> Out<Val> {
        into_datum(self.call_func(func, values, false)?)
    }

    /// Whether the result of a function counts as true.
    pub fn test(&self, func: &Func, values: &[Val]) -> Out<bool> {
        Ok(self.call_datum(func, values)?.truth())
    }
}

/// Whether a pseudotype has its required members.
fn is_whole(kind: &str, members: &std::collections::BTreeMap<String, Val>) -> bool {
    let text = |name: &str| matches!(members.get(name), Some(Val::Text(_)));
    match kind {
        "TIME" => matches!(members.get("epoch_time"), Some(Val::Number(_))) && text("timezone"),
        "BINARY" => text("data"),
        "GEOMETRY" => text("type") && matches!(members.get("coordinates"), Some(Val::Array(_))),
        _ => false,
    }
}

/// A value as a datum; a sequence is none.
pub fn into_datum(value: TermValue) -> Out<Val> {
    match value {
        TermValue::Datum(datum) | TermValue::Row(_, datum) => Ok(datum),
        TermValue::Groups(Groups::Ready(_) | Groups::Lazy(_)) => {
            Err(Fault::logic("expected DATUM but found GROUPED_DATA"))
        }
        other => Err(Fault::logic(format!("expected DATUM but found {}", other.type_of()))),
    }
}
