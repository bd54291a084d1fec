//! Functions with their captured variables. Only closed functions can be sent: an open one is refused on input,
//! like everything that cannot come from a client's query.

use std::sync::Arc;

use datum::{Datum, Text};

use super::eval_error::extended;
use super::{Codec, Packer, UnpackError, Unpacker};
use crate::args::Arg;
use crate::backtrace::{Frame, TermPath};
use crate::closure::{Closure, ResultKind};
use crate::deep;
use crate::eval;
use crate::scope::Scope;
use crate::signature::{self, Op};
use crate::term::{Call, FuncTerm, Term, VarId};

const DATUM: u8 = 0;
const VAR: u8 = 1;
const FUNC: u8 = 2;
const CALL: u8 = 3;

const NOWHERE: u8 = 0;
const FROM_ROOT: u8 = 1;
const FROM_AROUND: u8 = 2;

/// In the order of their numbers, which must not change.
const RESULT_KINDS: [ResultKind; 5] = [
    ResultKind::Datum,
    ResultKind::Literals,
    ResultKind::Sequence,
    ResultKind::Argument,
    ResultKind::Constant,
];

impl Codec for Closure {
    fn pack(&self, out: &mut Packer) {
        let result = RESULT_KINDS.iter().position(|kind| *kind == self.result).unwrap_or_default();
        out.byte(result as u8);
        out.count(self.captured.len() as u64);
        for (id, value) in self.captured.iter() {
            out.variable(id.0);
            value.pack(out);
        }
        write_func(&self.func, None, out);
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let result = RESULT_KINDS.get(usize::from(from.byte()?)).copied();
        let result = result.ok_or_else(|| from.invalid("the kind of a function's result"))?;
        let captured: Vec<(VarId, Datum)> =
            from.list(|from| Ok((VarId(i64::unpack(from)?), Datum::unpack(from)?)))?;
        let around = captured.iter().map(|(id, _)| *id).collect();
        let mut reader =
            Reader { from, funcs: vec![OpenFunc { path: None, params: around, captures: Vec::new() }] };
        let func = reader.func()?;
        if !func.closed {
            return Err(from.invalid("a closed function"));
        }
        eval::closure(&func, &Scope::of_call(&[], &[], &captured), result)
            .map_err(|_| from.invalid("a function's variables"))
    }
}

impl Codec for Arg {
    fn pack(&self, out: &mut Packer) {
        match self {
            Arg::Datum(datum) => {
                out.byte(0);
                datum.pack(out);
            }
            Arg::Func(closure) => {
                out.byte(1);
                closure.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        match from.byte()? {
            0 => Datum::unpack(from).map(Arg::Datum),
            1 => Closure::unpack(from).map(Arg::Func),
            _ => Err(from.invalid("an argument")),
        }
    }
}

/// `around` is the path of the enclosing function.
fn write_func(func: &FuncTerm, around: Option<&TermPath>, out: &mut Packer) {
    out.count(func.params.len() as u64);
    func.params.iter().for_each(|id| out.variable(id.0));
    write_path(func.path.as_ref(), around, out);
    write_term(&func.body, func.path.as_deref(), out);
}

fn write_term(term: &Term, around: Option<&TermPath>, out: &mut Packer) {
    deep::level(|| match term {
        Term::Datum(datum) => {
            out.byte(DATUM);
            datum.pack(out);
        }
        Term::Var(id) => {
            out.byte(VAR);
            out.variable(id.0);
        }
        Term::Func(func) => {
            out.byte(FUNC);
            write_func(func, around, out);
        }
        Term::Call(call) => {
            out.byte(CALL);
            out.count(u64::from(signature::of(call.op).id));
            out.count(call.args.len() as u64);
            call.args.iter().for_each(|arg| write_term(arg, around, out));
            out.count(call.optargs.len() as u64);
            for (name, term) in &call.optargs {
                name.pack(out);
                write_term(term, around, out);
            }
        }
    });
}

/// Writes only the path from the enclosing function to this one, so that nested functions do not take space
/// quadratic in their depth.
fn write_path(path: Option<&Arc<TermPath>>, around: Option<&TermPath>, out: &mut Packer) {
    let Some(path) = path.filter(|_| !out.is_for_digest()) else { return out.byte(NOWHERE) };
    match around.and_then(|around| path.beyond(around)) {
        Some(frames) => {
            out.byte(FROM_AROUND);
            out.list(frames.into_iter());
        }
        None => {
            out.byte(FROM_ROOT);
            path.pack(out);
        }
    }
}

/// A function whose body is being read.
struct OpenFunc {
    path: Option<Arc<TermPath>>,
    params: Vec<VarId>,
    captures: Vec<VarId>,
}

struct Reader<'a> {
    from: &'a mut Unpacker,
    /// The enclosing functions of the current term, outermost first.
    funcs: Vec<OpenFunc>,
}

impl Reader<'_> {
    fn func(&mut self) -> Result<Arc<FuncTerm>, UnpackError> {
        let params = self.from.list(|from| i64::unpack(from).map(VarId))?;
        let path = self.path()?;
        self.funcs.push(OpenFunc { path, params, captures: Vec::new() });
        let body = self.term();
        let Some(OpenFunc { path, params, captures }) = self.funcs.pop() else {
            return Err(self.from.invalid("a function"));
        };
        let body = body?;
        let closed = !body.is_open();
        Ok(Arc::new(FuncTerm { params, body, captures, closed, path }))
    }

    fn path(&mut self) -> Result<Option<Arc<TermPath>>, UnpackError> {
        let around = self.funcs.last().and_then(|func| func.path.clone());
        match self.from.byte()? {
            NOWHERE => Ok(None),
            FROM_ROOT => Arc::unpack(self.from).map(Some),
            FROM_AROUND => Ok(extended(around, self.from.list(Frame::unpack)?)),
            _ => Err(self.from.invalid("where a function stands")),
        }
    }

    fn term(&mut self) -> Result<Term, UnpackError> {
        deep::level(|| match self.from.byte()? {
            DATUM => Datum::unpack(self.from).map(Term::Datum),
            VAR => self.var(),
            FUNC => self.func().map(Term::Func),
            CALL => self.call(),
            _ => Err(self.from.invalid("a term")),
        })
    }

    /// Reads a use of a variable. Every function between here and the variable's own captures it.
    fn var(&mut self) -> Result<Term, UnpackError> {
        let id = VarId(i64::unpack(self.from)?);
        let owner = self.funcs.iter().rposition(|func| func.params.contains(&id));
        let owner = owner.ok_or_else(|| self.from.invalid("a variable that is bound"))?;
        for func in &mut self.funcs[owner + 1..] {
            if !func.captures.contains(&id) {
                func.captures.push(id);
            }
        }
        Ok(Term::Var(id))
    }

    fn call(&mut self) -> Result<Term, UnpackError> {
        let op = self.op()?;
        let count = self.from.size()?;
        let mut args = Vec::with_capacity(count.min(self.from.left()).min(64));
        for _ in 0..count {
            args.push(self.term()?);
        }
        let count = self.from.size()?;
        let mut optargs: Vec<(Text, Term)> = Vec::with_capacity(count.min(self.from.left()).min(64));
        for _ in 0..count {
            optargs.push((Text::unpack(self.from)?, self.term()?));
        }
        let call = Call::new(op, args, optargs);
        self.check(&call)?;
        Ok(Term::Call(Box::new(call)))
    }

    fn op(&mut self) -> Result<Op, UnpackError> {
        let id = u32::try_from(self.from.count()?).ok();
        match id.and_then(signature::by_id) {
            Some(Op::Datum | Op::Var | Op::ImplicitVar | Op::Func) | None => {
                Err(self.from.invalid("the number of a term"))
            }
            Some(op) => Ok(op),
        }
    }

    /// Applies the checks of the compiler for queries.
    fn check(&self, call: &Call) -> Result<(), UnpackError> {
        let signature = signature::of(call.op);
        if !call.traits.splices && !signature.arity.accepts(call.args.len()) {
            return Err(self.from.invalid("a term's arguments"));
        }
        let legal = match call.op {
            Op::MakeObj => {
                let mut keys: Vec<&Text> = call.optargs.iter().map(|(key, _)| key).collect();
                keys.sort_unstable();
                keys.windows(2).all(|pair| pair[0] != pair[1])
            }
            _ => call.optargs.iter().all(|(name, _)| signature.optargs.contains(&&**name)),
        };
        if legal { Ok(()) } else { Err(self.from.invalid("a term's optional arguments")) }
    }
}
