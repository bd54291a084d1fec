//! Translates terms into documents with the syntax of the JavaScript driver.
//!
//! RethinkDB's output is reproduced even where it is not valid JavaScript: `r.do` with several arguments has no
//! comma after its function and one after its last argument, strings are not escaped, and an array in an argument has no `r.expr` before its
//! methods. Users compare these texts. Source: RethinkDB 2.4, src/pprint/js_pprint.cc.

use datum::{Datum, pseudo};

use super::layout::Doc;
use super::names::{self, Form};
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term};

/// Deeper levels are printed as `...`.
const LEVELS_MAX: usize = 15;

/// Prints one term.
#[derive(Default)]
pub(super) struct Source {
    /// The number of enclosing levels, plus one for each `...` printed so far: RethinkDB counts a level that it
    /// leaves out and never uncounts it.
    levels: usize,
    /// Whether an enclosing term makes values terms, so that values need no `r.expr`.
    plain: bool,
    /// Whether the receiver of the enclosing chain begins with `r.`, so that nothing inside repeats it.
    after_r: bool,
}

/// A term, or a part of a value that is printed as terms.
#[derive(Clone, Copy)]
enum Node<'a> {
    Term(&'a Term),
    Value(&'a Datum),
}

/// One method of a chain.
struct Link {
    /// Whether the link is `.name(…)` instead of `(…)`.
    dotted: bool,
    doc: Doc,
}

impl Source {
    pub(super) fn term(&mut self, term: &Term) -> Doc {
        self.node(Node::Term(term))
    }

    fn node(&mut self, node: Node<'_>) -> Doc {
        self.levels += 1;
        if self.levels > LEVELS_MAX {
            return Doc::text("...");
        }
        let plain = self.plain;
        let doc = match node {
            Node::Value(value) | Node::Term(Term::Datum(value)) => self.value(value),
            Node::Term(Term::Var(id)) => Doc::text(names::of_variable(*id)),
            Node::Term(Term::Func(func)) => self.func(func),
            Node::Term(Term::Call(call)) => self.call(call),
        };
        self.plain = plain;
        self.levels -= 1;
        doc
    }

    /// A constant value, printed as the terms that make it.
    fn value(&mut self, value: &Datum) -> Doc {
        match value {
            Datum::MinVal => self.constant(Op::MinVal),
            Datum::MaxVal => self.constant(Op::MaxVal),
            Datum::Array(items) => self.array(items.iter().map(Node::Value)),
            _ => match pseudo::to_object(value) {
                Some(object) => {
                    let members: Vec<_> = object.iter().collect();
                    self.object(members.iter().map(|(name, value)| (&**name, Node::Value(value))))
                }
                None if self.plain => scalar(value),
                None => self.wrapped("expr", scalar(value)),
            },
        }
    }

    fn call(&mut self, call: &Call) -> Doc {
        match names::form(call.op, call.args.len()) {
            Form::Value if call.op == Op::MakeArray => self.array(call.args.iter().map(Node::Term)),
            Form::Value => self.object(call.optargs.iter().map(|(name, term)| (&**name, Node::Term(term)))),
            Form::Method => self.chain(call),
            Form::Function if call.op == Op::Funcall => self.do_several(call),
            Form::Function => self.function(call),
            Form::Constant => self.constant(call.op),
        }
    }

    fn array<'a>(&mut self, items: impl Iterator<Item = Node<'a>>) -> Doc {
        let plain = std::mem::replace(&mut self.plain, true);
        let items: Vec<Doc> = items.map(|item| self.node(item)).collect();
        let array = Doc::row([Doc::text("["), Doc::nest(listed(items)), Doc::text("]")]);
        if plain { array } else { self.wrapped("expr", array) }
    }

    /// `{"a": 1}`, or `r.object("a", 1)` where a value must become a term.
    fn object<'a>(&mut self, members: impl Iterator<Item = (&'a str, Node<'a>)>) -> Doc {
        if std::mem::replace(&mut self.plain, true) {
            let members = members.map(|(name, node)| Doc::nest(member(name, self.node(node)))).collect();
            return Doc::row([Doc::text("{"), Doc::nest(listed(members)), Doc::text("}")]);
        }
        let members = members.flat_map(|(name, node)| [Doc::text(quoted(name)), self.node(node)]).collect();
        self.wrapped("object", Doc::nest(listed(members)))
    }

    /// A chain `a.b(…)(…).c(…)` of any length, without recursion.
    fn chain(&mut self, last: &Call) -> Doc {
        let mut links = Vec::new();
        let mut end = Some(last);
        let mut receiver = None;
        while let Some(call) = end.take() {
            links.push(self.link(call));
            receiver = receiver_of(call);
            if let Some(Term::Call(next)) = receiver {
                end = (names::form(next.op, next.args.len()) == Form::Method).then_some(next);
            }
        }
        links.reverse();
        match receiver {
            None => self.with_r(joined(links, None)),
            Some(term) if stands_alone(term) => {
                let receiver = self.term(term);
                Doc::nest(joined(links, Some((receiver, Doc::text(".")))))
            }
            Some(term) => {
                let after_r = std::mem::replace(&mut self.after_r, true);
                let receiver = self.term(term);
                self.after_r = after_r;
                self.with_r(joined(links, Some((receiver, Doc::DOT))))
            }
        }
    }

    /// The last method of a chain. Its arguments are visited from last to first, which determines where `...`
    /// appears.
    fn link(&mut self, call: &Call) -> Link {
        let plain = std::mem::replace(&mut self.plain, true);
        let options = self.options(call);
        let given = match call.op {
            Op::Funcall => call.args.get(..1),
            _ => call.args.get(1..),
        };
        let mut args: Vec<Doc> = given.unwrap_or_default().iter().rev().map(|arg| self.term(arg)).collect();
        args.reverse();
        self.plain = plain;
        let name = match call.op {
            Op::Bracket => String::new(),
            Op::Funcall => "do".to_owned(),
            op => names::of_term(op),
        };
        let mut all = Vec::new();
        if !args.is_empty() {
            let args = listed(args);
            all.push(if call.op == Op::Bracket { args } else { Doc::nest(args) });
        }
        all.extend(options);
        let doc = Doc::row([Doc::text(name), Doc::text("("), listed(all), Doc::text(")")]);
        Link { dotted: call.op != Op::Bracket && !call.args.is_empty(), doc }
    }

    /// `r.name(a, b, {"option": c})`
    fn function(&mut self, call: &Call) -> Doc {
        self.plain = true;
        let mut args: Vec<Doc> = call.args.iter().map(|arg| self.term(arg)).collect();
        args.extend(self.options(call));
        let name = Doc::text(names::of_term(call.op));
        let args = Doc::nest(listed(args));
        self.with_r(Doc::row([name, Doc::text("("), args, Doc::text(")")]))
    }

    /// `r.do` with no value, or with several.
    fn do_several(&mut self, call: &Call) -> Doc {
        let Some((func, args)) = call.args.split_first() else { return self.function(call) };
        let plain = std::mem::replace(&mut self.plain, true);
        let args: Vec<Doc> = args.iter().map(|arg| self.term(arg)).collect();
        self.plain = plain;
        let func = self.term(func);
        let mut arguments = vec![listed(args)];
        if call.args.len() > 1 {
            arguments.extend([Doc::text(","), Doc::SPACE]);
        }
        self.with_r(Doc::row([Doc::text("do("), func, Doc::nest(Doc::Row(arguments)), Doc::text(")")]))
    }

    fn options(&mut self, call: &Call) -> Option<Doc> {
        if call.optargs.is_empty() {
            return None;
        }
        let options = call.optargs.iter();
        let options = options
            .map(|(name, term)| Doc::nest(member(&names::camel_case(name), self.term(term))))
            .collect();
        Some(Doc::row([Doc::text("{"), Doc::nest(listed(options)), Doc::text("}")]))
    }

    fn func(&mut self, func: &FuncTerm) -> Doc {
        let params = func.params.iter().map(|id| Doc::text(names::of_variable(*id))).collect();
        self.plain = false;
        let body = self.term(&func.body);
        let head = Doc::row([
            Doc::text("tion ("),
            Doc::nest(listed(params)),
            Doc::text(") {"),
            Doc::NewLine,
            Doc::text("return "),
            Doc::nest(body),
            Doc::text(";"),
        ]);
        // The body is indented to the middle of the word `function`.
        Doc::nest(Doc::row([Doc::text("func"), Doc::nest(head), Doc::NewLine, Doc::text("}")]))
    }

    fn constant(&self, op: Op) -> Doc {
        self.with_r(Doc::text(names::of_term(op)))
    }

    /// `r.expr(…)`
    fn wrapped(&self, by: &'static str, inner: Doc) -> Doc {
        self.with_r(Doc::row([Doc::text(by), Doc::text("("), Doc::nest(inner), Doc::text(")")]))
    }

    /// `r.` followed by `doc`.
    fn with_r(&self, doc: Doc) -> Doc {
        match self.after_r {
            true => doc,
            false => Doc::row([Doc::text("r"), Doc::nest(Doc::row([Doc::text("."), doc]))]),
        }
    }
}

/// The receiver of the last method of a chain.
fn receiver_of(call: &Call) -> Option<&Term> {
    match call.op {
        Op::Funcall => call.args.get(1),
        _ => call.args.first(),
    }
}

/// Whether a chain may begin with this term without `r.` before it.
fn stands_alone(term: &Term) -> bool {
    match term {
        Term::Var(_) => true,
        Term::Datum(value) => {
            !matches!(value, Datum::MinVal | Datum::MaxVal | Datum::Array(_))
                && pseudo::to_object(value).is_none()
        }
        Term::Func(_) | Term::Call(_) => false,
    }
}

/// Joins the start of a chain, the dot after it, and its methods.
fn joined(links: Vec<Link>, receiver: Option<(Doc, Doc)>) -> Doc {
    let mut row = Vec::with_capacity(1 + 2 * links.len());
    let mut first_dot = None;
    if let Some((receiver, first)) = receiver {
        row.push(receiver);
        first_dot = Some(first);
    }
    for link in links {
        let first = first_dot.take();
        if link.dotted {
            row.push(first.unwrap_or(Doc::DOT));
        }
        row.push(link.doc);
    }
    Doc::Row(row)
}

fn listed(items: Vec<Doc>) -> Doc {
    let mut row = Vec::with_capacity(3 * items.len());
    for item in items {
        if !row.is_empty() {
            row.extend([Doc::text(","), Doc::SPACE]);
        }
        row.push(item);
    }
    Doc::Row(row)
}

fn member(name: &str, value: Doc) -> Doc {
    Doc::row([Doc::text(format!("{}:", quoted(name))), Doc::SPACE, value])
}

/// A value that is neither an array nor an object.
fn scalar(value: &Datum) -> Doc {
    match value {
        Datum::Number(number) => Doc::text(number_text(*number)),
        Datum::String(text) => Doc::text(quoted(text)),
        Datum::Bool(flag) => Doc::text(flag.to_string()),
        _ => Doc::text("null"),
    }
}

/// Quotes text without escaping it; the text ends at its first NUL.
fn quoted(text: &str) -> String {
    let end = text.find('\0').unwrap_or(text.len());
    format!("\"{}\"", &text[..end])
}

/// Prints integers as C's `long` and all other numbers with six decimals.
fn number_text(number: f64) -> String {
    const LONG_END: f64 = 9_223_372_036_854_775_808.0;
    if number.trunc() != number {
        return format!("{number:.6}");
    }
    // The processor converts numbers out of range, in either direction, to the smallest `long`.
    let fits = (-LONG_END..LONG_END).contains(&number);
    let whole = if fits { number as i64 } else { i64::MIN };
    whole.to_string()
}
