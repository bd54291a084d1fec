//! Compiles JSON nodes into terms and reports all errors that can be found before evaluation.

mod raw;
pub(super) mod walk;

use std::borrow::Cow;
use std::sync::Arc;

use datum::{Datum, Object, ObjectBuilder, Text, pseudo};

use super::tape::{Node, Value};
use crate::backtrace::{Frame, TermPath};
use crate::deep;
use crate::env::ARRAY_LIMIT_DEFAULT;
use crate::error::CompileError;
use crate::signature::{self, Op};
use crate::term::{Call, FuncTerm, Term, VarId};
use raw::{Raw, not_found, read_params, read_raw};

pub(super) use raw::var_id;

/// Compiles one tree.
pub(super) struct Compiler<'s> {
    /// The text of the query; strings are slices of it.
    source: &'s Text,
    /// The enclosing functions of the current node, outermost first.
    funcs: Vec<OpenFunc>,
    /// Whether constants may be folded into values.
    fold: bool,
    /// The arguments on the path to the current node, outermost first.
    steps: Vec<Step>,
    /// Whether functions get their paths.
    places_functions: bool,
    /// Whether `r.row` stays a term, for printing; otherwise it becomes the variable that it stands for.
    keeps_row: bool,
}

/// An argument on the path to the current node.
struct Step {
    frame: Frame,
    /// The path up to here, if a function below needed it.
    path: Option<Arc<TermPath>>,
}

/// A function whose body is being compiled.
struct OpenFunc {
    params: Vec<VarId>,
    captures: Vec<VarId>,
}

/// The context of a node, which restricts the terms allowed there.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Whether writes are forbidden, inside an argument of a stream operation.
    no_writes: bool,
    /// Whether ASC and DESC are legal, directly below ORDER_BY or UNION.
    ordering: bool,
}

impl<'s> Compiler<'s> {
    /// `fold` tells that the query sets no array limit, which folded arrays would bypass.
    pub(super) fn new(source: &'s Text, fold: bool) -> Self {
        Compiler {
            source,
            funcs: Vec::new(),
            fold,
            steps: Vec::new(),
            places_functions: false,
            keeps_row: false,
        }
    }

    /// A compiler for the term of a query, whose functions get their paths.
    pub(super) fn of_query(source: &'s Text, fold: bool) -> Self {
        Compiler { places_functions: true, ..Compiler::new(source, fold) }
    }

    /// A compiler for a term inside functions with these parameters, outermost first.
    pub(super) fn within(source: &'s Text, functions: Vec<Vec<VarId>>) -> Self {
        let open = |params| OpenFunc { params, captures: Vec::new() };
        Compiler { funcs: functions.into_iter().map(open).collect(), ..Compiler::new(source, true) }
    }

    /// A compiler like [`Compiler::within`] for a term that is printed as it was sent.
    pub(super) fn for_print(source: &'s Text, functions: Vec<Vec<VarId>>) -> Self {
        Compiler { fold: false, keeps_row: true, ..Compiler::within(source, functions) }
    }

    /// Compiles the root of a tree.
    pub(super) fn root(&mut self, value: Value<'_, '_>) -> Result<Term, CompileError> {
        self.term(value, Context::default())
    }

    /// Compiles the argument `frame` of the current node.
    fn below(&mut self, frame: Frame, value: Value<'_, '_>, context: Context) -> Result<Term, CompileError> {
        self.steps.push(Step { frame, path: None });
        let term = self.term(value, context);
        match (term, self.steps.pop()) {
            (Err(error), Some(step)) => Err(error.at(step.frame)),
            (term, _) => term,
        }
    }

    /// The path to the current node.
    fn path(&mut self) -> Option<Arc<TermPath>> {
        if !self.places_functions {
            return None;
        }
        let known = self.steps.iter().rposition(|step| step.path.is_some());
        let mut path = known.and_then(|i| self.steps[i].path.clone());
        for step in &mut self.steps[known.map_or(0, |i| i + 1)..] {
            path = Some(Arc::new(TermPath::new(path, step.frame.clone())));
            step.path.clone_from(&path);
        }
        path
    }

    fn term(&mut self, value: Value<'_, '_>, context: Context) -> Result<Term, CompileError> {
        if self.fold && value.is_known() {
            if let Some(datum) = self.known(value) {
                return Ok(Term::Datum(datum));
            }
            // Trying again at every level below would take time quadratic in the depth.
            self.fold = false;
        }
        deep::level(|| match value.node() {
            Node::Object(_) => self.make_obj(Some(value), context),
            Node::Array(_) => self.raw_term(value, context),
            _ => Ok(Term::Datum(self.scalar(value))),
        })
    }

    /// The value of a node that is neither an array nor an object.
    fn scalar(&self, value: Value<'_, '_>) -> Datum {
        match value.node() {
            Node::Bool(flag) => Datum::Bool(*flag),
            Node::Number(number, _) => Datum::Number(*number),
            Node::String(text) => Datum::String(self.text(text)),
            Node::Null | Node::Array(_) | Node::Object(_) => Datum::Null,
        }
    }

    /// A string as a slice of the query's text, if it is spelled there without escapes.
    #[allow(clippy::ptr_arg, reason = "whether it is borrowed is what matters")]
    fn text(&self, text: &Cow<'_, str>) -> Text {
        match text {
            Cow::Borrowed(part) => self.source.slice_ref(part),
            Cow::Owned(unescaped) => Text::from(unescaped.as_str()),
        }
    }

    /// The value of a constant node. `None` if making it is an error, which the compilation or the evaluation then
    /// reports.
    fn known(&self, value: Value<'_, '_>) -> Option<Datum> {
        if let Some(mut elements) = value.items() {
            let items = elements.nth(1).and_then(Value::items)?;
            if items.len() > ARRAY_LIMIT_DEFAULT {
                return None;
            }
            return deep::level(|| items.map(|item| self.known(item)).collect::<Option<Vec<_>>>())
                .map(Datum::from);
        }
        let Some(members) = value.members() else { return Some(self.scalar(value)) };
        let mut object = ObjectBuilder::new();
        for (key, value) in members {
            let value = deep::level(|| self.known(value))?;
            if object.insert(self.text(key), value).is_some() {
                return None;
            }
        }
        plain_or_pseudo(object.build())
    }

    fn raw_term(&mut self, value: Value<'_, '_>, context: Context) -> Result<Term, CompileError> {
        let raw = read_raw(value)?;
        match raw.op {
            Op::Datum => self.literal(&raw),
            Op::Func => self.func(&raw, context),
            Op::Var => self.var(&raw),
            Op::ImplicitVar => self.implicit_var(&raw),
            Op::MakeObj if raw.args_len() > 0 => {
                Err(CompileError::compile("MAKE_OBJ term must not have any args."))
            }
            Op::MakeObj => self.make_obj(raw.optargs, context),
            _ => self.call(&raw, context),
        }
    }

    fn call(&mut self, raw: &Raw<'_, '_>, context: Context) -> Result<Term, CompileError> {
        check_context(raw.op, context)?;
        let signature = signature::of(raw.op);
        let mut args = Vec::with_capacity(raw.args_len());
        if let Some(values) = raw.args.and_then(Value::items) {
            for (i, value) in values.enumerate() {
                let below = context_of_arg(raw.op, i, context);
                args.push(self.below(Frame::from(i), value, below)?);
            }
        }
        let splices = args.iter().any(is_splice);
        if !splices && !signature.arity.accepts(args.len()) {
            return Err(CompileError::compile(signature.arity.mismatch(args.len())));
        }
        let mut optargs = Vec::new();
        if let Some(members) = raw.optargs.and_then(Value::members) {
            for (name, value) in members {
                if !signature.optargs.contains(&&**name) {
                    let message = format!("Unrecognized optional argument `{name}`.");
                    return Err(CompileError::compile(message).at(Frame::from(&self.text(name))));
                }
                let below = context_of_optarg(raw.op, context);
                let name = self.text(name);
                let term = self.below(Frame::from(&name), value, below)?;
                if is_named(&optargs, &name) {
                    let message = format!("Duplicate optional argument: {name}");
                    return Err(CompileError::compile(message).at(Frame::from(&name)));
                }
                optargs.push((name, term));
            }
        }
        let mut call = Call::new(raw.op, args, optargs);
        if raw.op == Op::IndexCreate {
            call.path = self.path();
        }
        Ok(Term::Call(Box::new(call)))
    }

    fn make_obj(&mut self, members: Option<Value<'_, '_>>, context: Context) -> Result<Term, CompileError> {
        let mut optargs = Vec::new();
        let below = Context { ordering: false, ..context };
        for (key, value) in members.and_then(Value::members).into_iter().flatten() {
            let key = self.text(key);
            let term = self.below(Frame::from(&key), value, below)?;
            optargs.push((key, term));
        }
        match duplicate_key(&optargs) {
            Some(key) => Err(CompileError::compile(format!("Duplicate object key: {key}."))),
            None => Ok(Term::Call(Box::new(Call::new(Op::MakeObj, Vec::new(), optargs)))),
        }
    }

    /// `[1, value]`: an explicit datum.
    fn literal(&self, raw: &Raw<'_, '_>) -> Result<Term, CompileError> {
        let only = |value: Value<'_, '_>| match value.items() {
            Some(mut items) => items.next().map(|item| self.plain_value(item)),
            None => Some(self.plain_value(value)),
        };
        raw.args.and_then(only).map(Term::Datum).ok_or_else(|| {
            CompileError::compile(format!("Expected 3 items in array, but found {}.", raw.count))
        })
    }

    /// A JSON value without interpretation, arrays included.
    fn plain_value(&self, value: Value<'_, '_>) -> Datum {
        deep::level(|| {
            if let Some(items) = value.items() {
                return Datum::from(items.map(|item| self.plain_value(item)).collect::<Vec<_>>());
            }
            let Some(members) = value.members() else { return self.scalar(value) };
            let members = members.map(|(key, value)| (self.text(key), self.plain_value(value)));
            Datum::Object(members.collect())
        })
    }

    fn func(&mut self, raw: &Raw<'_, '_>, context: Context) -> Result<Term, CompileError> {
        if raw.has_optargs() {
            return Err(CompileError::compile("FUNC takes no optional arguments."));
        }
        let mut args = raw.args();
        let (Some(params), Some(body), 2) = (args.next(), args.next(), raw.args_len()) else {
            let message = format!("FUNC takes exactly two arguments (got {})", raw.args_len());
            return Err(CompileError::compile(message));
        };
        self.funcs.push(OpenFunc { params: read_params(params)?, captures: Vec::new() });
        let below = Context { ordering: false, ..context };
        let path = self.path();
        let body = self.below(Frame::from(1), body, below);
        let OpenFunc { params, captures } = self.funcs.pop().ok_or_else(not_found)?;
        let body = body?;
        let closed = !body.is_open();
        Ok(Term::Func(Arc::new(FuncTerm { params, body, captures, closed, path })))
    }

    fn var(&mut self, raw: &Raw<'_, '_>) -> Result<Term, CompileError> {
        let mut args = raw.args();
        let id = args.next().and_then(var_id).ok_or_else(not_found)?;
        if args.next().is_some() {
            return Err(CompileError::compile(signature::of(Op::Var).arity.mismatch(raw.args_len())));
        }
        self.bind(id)
    }

    /// `r.row`: legal if exactly one enclosing function has exactly one parameter.
    fn implicit_var(&mut self, raw: &Raw<'_, '_>) -> Result<Term, CompileError> {
        if raw.args_len() > 0 {
            let arity = signature::of(Op::ImplicitVar).arity;
            return Err(CompileError::compile(arity.mismatch(raw.args_len())));
        }
        let mut candidates = self.funcs.iter().filter_map(|func| match func.params.as_slice() {
            [only] if only.0 >= 0 => Some(*only),
            _ => None,
        });
        match (candidates.next(), candidates.next()) {
            (None, _) => Err(CompileError::compile("r.row is not defined in this context.")),
            (Some(only), None) => {
                let var = self.bind(only)?;
                Ok(if self.keeps_row { row_term() } else { var })
            }
            (Some(_), Some(_)) => {
                Err(CompileError::compile("Cannot use r.row in nested queries.  Use functions instead."))
            }
        }
    }

    /// A use of variable `id`. Every function between here and the variable's own captures it.
    fn bind(&mut self, id: VarId) -> Result<Term, CompileError> {
        let owner = self.funcs.iter().rposition(|func| func.params.contains(&id));
        let owner = owner.ok_or_else(not_found)?;
        for func in &mut self.funcs[owner + 1..] {
            if !func.captures.contains(&id) {
                func.captures.push(id);
            }
        }
        Ok(Term::Var(id))
    }
}

/// `r.row` as a term.
fn row_term() -> Term {
    Term::Call(Box::new(Call::new(Op::ImplicitVar, Vec::new(), Vec::new())))
}

fn is_splice(term: &Term) -> bool {
    matches!(term, Term::Call(call) if call.op == Op::Args)
}

/// An object as the value it represents. `None` for a literal, which is legal only inside a merge, and for an
/// invalid pseudotype: both are left to the evaluation.
fn plain_or_pseudo(object: Object) -> Option<Datum> {
    if !object.contains_key(pseudo::KEY) {
        return Some(Datum::Object(object));
    }
    if pseudo::is_literal(&object) {
        return None;
    }
    pseudo::from_object(object).ok()
}

/// Whether `optargs` contains this name. The list is short.
pub(super) fn is_named(optargs: &[(Text, Term)], name: &str) -> bool {
    optargs.iter().any(|(key, _)| key == name)
}

fn duplicate_key(members: &[(Text, Term)]) -> Option<&Text> {
    if members.len() < 2 {
        return None;
    }
    let mut keys: Vec<&Text> = members.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

fn check_context(op: Op, context: Context) -> Result<(), CompileError> {
    if context.no_writes && signature::of(op).is_write() {
        return Err(CompileError::compile(
            "Cannot nest writes or meta ops in stream operations.  Use FOR_EACH instead.",
        ));
    }
    if matches!(op, Op::Asc | Op::Desc) && !context.ordering {
        return Err(CompileError::compile(format!(
            "{} may only be used as an argument to ORDER_BY or UNION.",
            op.name()
        )));
    }
    Ok(())
}

/// Whether writes are allowed only in the first argument of `op`.
fn is_stream_operation(op: Op) -> bool {
    matches!(
        op,
        Op::Reduce
            | Op::Map
            | Op::Fold
            | Op::Filter
            | Op::ConcatMap
            | Op::Group
            | Op::InnerJoin
            | Op::OuterJoin
            | Op::EqJoin
            | Op::Update
            | Op::Delete
            | Op::Replace
            | Op::Insert
            | Op::Count
            | Op::Sum
            | Op::Avg
            | Op::Min
            | Op::Max
    )
}

fn context_of_arg(op: Op, i: usize, context: Context) -> Context {
    Context {
        no_writes: context.no_writes || (i > 0 && is_stream_operation(op)),
        ordering: orders_below(op, context),
    }
}

fn context_of_optarg(op: Op, context: Context) -> Context {
    Context { no_writes: context.no_writes || is_stream_operation(op), ordering: orders_below(op, context) }
}

/// ASC and DESC are legal directly below ORDER_BY or UNION, or in an array there.
fn orders_below(op: Op, context: Context) -> bool {
    match op {
        Op::OrderBy | Op::Union => true,
        Op::MakeArray => context.ordering,
        _ => false,
    }
}
