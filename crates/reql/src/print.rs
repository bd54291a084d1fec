//! Functions and terms as a reader of the JavaScript driver would write them.
//!
//! `info`, `index_status` and the jobs table show queries this way. Variables are numbered in
//! the order in which functions bind them.

use std::fmt::Write;

use datum::{Datum, pseudo};

use crate::deep;
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term, VarId};

/// The source of a function: `function(var1) { return var1("a"); }`
#[must_use]
pub fn function(func: &FuncTerm) -> String {
    let mut printer = Printer::default();
    printer.function(func);
    printer.out
}

/// The source of a term.
#[must_use]
pub fn term(term: &Term) -> String {
    let mut printer = Printer::default();
    printer.term(term);
    printer.out
}

#[derive(Default)]
struct Printer {
    out: String,
    /// Variables in the order they were bound; one bound twice has its later number.
    bound: Vec<VarId>,
}

impl Printer {
    fn function(&mut self, func: &FuncTerm) {
        self.out.push_str("function(");
        for (i, param) in func.params.iter().enumerate() {
            self.bound.push(*param);
            let separator = if i == 0 { "" } else { ", " };
            let number = self.bound.len();
            self.push(format_args!("{separator}var{number}"));
        }
        self.out.push_str(") { return ");
        self.term(&func.body);
        self.out.push_str("; }");
    }

    fn term(&mut self, term: &Term) {
        deep::level(|| match term {
            Term::Datum(datum) => self.datum(datum),
            Term::Var(id) => self.variable(*id),
            Term::Func(func) => self.function(func),
            Term::Call(call) => self.call(call),
        });
    }

    /// What a method is called on; literals need to become terms first.
    fn receiver(&mut self, term: &Term) {
        let plain = match term {
            Term::Datum(_) | Term::Func(_) => true,
            Term::Call(call) => matches!(call.op, Op::MakeArray | Op::MakeObj),
            Term::Var(_) => false,
        };
        if plain {
            self.out.push_str("r.expr(");
        }
        self.term(term);
        if plain {
            self.out.push(')');
        }
    }

    fn datum(&mut self, datum: &Datum) {
        match datum {
            Datum::MinVal => self.out.push_str("r.minval"),
            Datum::MaxVal => self.out.push_str("r.maxval"),
            other => self.out.push_str(&other.to_json_string()),
        }
    }

    fn variable(&mut self, id: VarId) {
        match self.bound.iter().rposition(|bound| *bound == id) {
            Some(position) => self.push(format_args!("var{}", position + 1)),
            None => self.push(format_args!("var_{}", id.0)),
        }
    }

    fn call(&mut self, call: &Call) {
        match (call.op, call.args.as_slice()) {
            (Op::MakeArray, items) => {
                self.out.push('[');
                self.list(items);
                self.out.push(']');
            }
            (Op::MakeObj, _) => self.members(call),
            (Op::Bracket, [first, second]) => {
                self.receiver(first);
                self.out.push('(');
                self.term(second);
                self.out.push(')');
            }
            (Op::Funcall, [function, first, more @ ..]) => {
                self.receiver(first);
                self.out.push_str(".do(");
                self.list(more);
                self.out.push_str(if more.is_empty() { "" } else { ", " });
                self.term(function);
                self.out.push(')');
            }
            (Op::MinVal, _) => self.out.push_str("r.minval"),
            (Op::MaxVal, _) => self.out.push_str("r.maxval"),
            (op, [first, more @ ..]) if !is_prefix(op, call.args.len()) => {
                self.receiver(first);
                self.push(format_args!(".{}(", method_name(op)));
                self.arguments(more, call);
            }
            (op, args) => {
                self.push(format_args!("r.{}(", method_name(op)));
                self.arguments(args, call);
            }
        }
    }

    fn arguments(&mut self, args: &[Term], call: &Call) {
        self.list(args);
        if !call.optargs.is_empty() {
            self.out.push_str(if args.is_empty() { "" } else { ", " });
            self.members(call);
        }
        self.out.push(')');
    }

    fn list(&mut self, terms: &[Term]) {
        for (i, term) in terms.iter().enumerate() {
            self.out.push_str(if i == 0 { "" } else { ", " });
            self.term(term);
        }
    }

    fn members(&mut self, call: &Call) {
        self.out.push('{');
        for (i, (key, value)) in call.optargs.iter().enumerate() {
            self.out.push_str(if i == 0 { "" } else { ", " });
            match is_name(key) {
                true => self.out.push_str(key),
                false => self.out.push_str(&Datum::from(key.clone()).to_json_string()),
            }
            self.out.push_str(": ");
            self.term(value);
        }
        self.out.push('}');
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(text);
    }
}

fn is_name(key: &str) -> bool {
    key != pseudo::KEY
        && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Terms that are written `r.term(…)` and not as methods.
fn is_prefix(op: Op, args: usize) -> bool {
    // Without a database before them they are written so too.
    let without_db = matches!(op, Op::Table | Op::TableCreate | Op::TableDrop) && args == 1;
    without_db
        || matches!(
            op,
            Op::Branch
                | Op::Args
                | Op::Error
                | Op::Json
                | Op::Http
                | Op::Javascript
                | Op::Uuid
                | Op::Random
                | Op::Range
                | Op::Object
                | Op::Literal
                | Op::Binary
                | Op::Iso8601
                | Op::EpochTime
                | Op::Time
                | Op::Asc
                | Op::Desc
                | Op::Db
                | Op::DbCreate
                | Op::DbDrop
                | Op::Point
                | Op::Line
                | Op::Polygon
                | Op::Circle
                | Op::Geojson
        )
}

/// `GET_FIELD` as `getField`.
fn method_name(op: Op) -> String {
    match op {
        Op::Iso8601 => return "ISO8601".to_owned(),
        Op::ToIso8601 => return "toISO8601".to_owned(),
        Op::ToJsonString => return "toJSON".to_owned(),
        _ => {}
    }
    let mut name = String::new();
    for (i, word) in op.name().split('_').enumerate() {
        let (head, tail) = word.split_at(word.len().min(1));
        name.push_str(&if i == 0 { head.to_lowercase() } else { head.to_owned() });
        name.push_str(&tail.to_lowercase());
    }
    name
}
