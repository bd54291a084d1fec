//! The parts of a term in wire form, and the numbers in them.

use crate::error::CompileError;
use crate::signature::{self, Op};
use crate::term::VarId;
use crate::wire::tape::{Node, Value};

/// The parts of a term on the wire.
pub(super) struct Raw<'t, 'a> {
    pub(super) op: Op,
    pub(super) count: usize,
    pub(super) args: Option<Value<'t, 'a>>,
    pub(super) optargs: Option<Value<'t, 'a>>,
}

impl<'t, 'a> Raw<'t, 'a> {
    pub(super) fn args(&self) -> impl Iterator<Item = Value<'t, 'a>> + use<'t, 'a> {
        self.args.and_then(Value::items).into_iter().flatten()
    }

    /// Whether there are optional arguments. Some drivers send an empty object behind every term.
    pub(super) fn has_optargs(&self) -> bool {
        self.optargs.and_then(Value::members).is_some_and(|members| members.len() > 0)
    }

    pub(super) fn args_len(&self) -> usize {
        self.args.and_then(Value::items).map_or(0, |items| items.len())
    }
}

/// Splits `[id, args, optargs]`.
pub(super) fn read_raw<'t, 'a>(value: Value<'t, 'a>) -> Result<Raw<'t, 'a>, CompileError> {
    let mut elements = value.items().ok_or_else(not_found)?;
    let count = elements.len();
    if !(1..=3).contains(&count) {
        return Err(CompileError::compile(format!(
            "Expected between 1 and 3 elements in a raw term, but found {count}."
        )));
    }
    let op = read_op(elements.next().map_or(&Node::Null, Value::node))?;
    let (second, third) = (elements.next(), elements.next());
    if op == Op::Datum {
        return Ok(Raw { op, count, args: second, optargs: None });
    }
    let is_object = |value: Value<'_, '_>| matches!(value.node(), Node::Object(_));
    let (args, optargs) = match (second, third) {
        (Some(second), None) if is_object(second) => (None, Some(second)),
        (Some(second), Some(third)) if is_object(second) && is_object(third) => {
            return Err(CompileError::compile(
                "Second and third element in a term are both optional arguments.",
            ));
        }
        (Some(second), _) if !is_object(second) && second.items().is_none() => {
            return Err(CompileError::compile(
                "Second element in a Term is neither arguments nor optional arguments.",
            ));
        }
        (_, Some(third)) if !is_object(third) => {
            return Err(CompileError::compile("Third element in a Term is not optional arguments."));
        }
        (second, third) => (second, third),
    };
    Ok(Raw { op, count, args, optargs })
}

fn read_op(node: &Node<'_>) -> Result<Op, CompileError> {
    let Node::Number(number, _) = *node else {
        return Err(CompileError::compile(format!(
            "Expected a TermType as a NUMBER but found {}.",
            node.type_name()
        )));
    };
    let id = Some(number).filter(|n| n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(n));
    id.and_then(|id| signature::by_id(id as u32)).ok_or_else(|| {
        let number = datum::format_number(number);
        CompileError::compile(format!("Unrecognized TermType: {number}."))
    })
}

pub(super) fn read_params(value: Value<'_, '_>) -> Result<Vec<VarId>, CompileError> {
    let wrong = |what: &str| CompileError::compile(format!("CLIENT ERROR: FUNC variables must be a {what}."));
    let is_term = |value: Value<'_, '_>| value.items().is_some() || matches!(value.node(), Node::Object(_));
    if !is_term(value) {
        return Err(wrong("literal *array* of numbers"));
    }
    let raw = read_raw(value).ok().filter(|raw| !raw.has_optargs());
    let raw = match raw {
        Some(raw) if raw.op == Op::MakeArray => raw,
        // RethinkDB takes the elements of an explicit array for terms.
        Some(raw) if raw.op == Op::Datum && raw.args_len() > 0 => {
            return Err(wrong("literal array of *numbers*"));
        }
        _ => return Err(wrong("*literal array of numbers*")),
    };
    let id = |param| match is_term(param) && var_id(param).is_none() {
        true => Err(wrong("*literal* array of numbers")),
        false => var_id(param).ok_or_else(|| wrong("literal array of *numbers*")),
    };
    raw.args().map(id).collect()
}

/// The number of a variable, plain or as an explicit datum.
pub(in crate::wire) fn var_id(value: Value<'_, '_>) -> Option<VarId> {
    let mut parts = value.items().into_iter().flatten();
    let number = match (parts.next().map(Value::node), parts.next(), parts.next()) {
        (None, ..) => value,
        (Some(Node::Number(id, _)), Some(number), None) if *id == 1.0 => number,
        _ => return None,
    };
    match number.node() {
        Node::Number(number, _) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Some(VarId(*number as i64))
        }
        _ => None,
    }
}

pub(super) fn not_found() -> CompileError {
    CompileError::compile("Variable name not found.")
}
