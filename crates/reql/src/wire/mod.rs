//! Parses queries: bytes become validated terms.
//!
//! Reports all errors that RethinkDB reports before evaluation: malformed trees, arity, unknown options, writes
//! nested in stream operations, unbound variables. No input causes a panic or a stack overflow.

mod bounded_text;
mod compile;
pub(crate) mod numbered;
mod tape;
mod write;

use datum::{Bytes, Text};

use crate::error::CompileError;
use crate::signature;
use crate::term::{Term, VarId};
use compile::{Compiler, is_named};
use tape::{Node, Tape, Value};

pub use write::write_term;

/// The type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// Evaluate a term.
    Start,
    /// Send the next batch of the query with this token.
    Continue,
    /// Cancel the query with this token.
    Stop,
    /// Respond when all earlier noreply queries are done.
    NoreplyWait,
    /// Describe this server.
    ServerInfo,
}

/// One request of a client.
#[derive(Debug)]
pub struct Query {
    /// The type.
    pub kind: QueryKind,
    /// The term to evaluate; present for START and only then.
    pub term: Option<Term>,
    /// Options of the whole query, each a term.
    pub optargs: Vec<(Text, Term)>,
    /// The text of the query.
    pub source: Text,
}

impl Query {
    #[must_use]
    pub fn optarg(&self, name: &str) -> Option<&Term> {
        self.optargs.iter().find(|(key, _)| key == name).map(|(_, term)| term)
    }

    /// Whether an option that is read before evaluation is literally true (`noreply`, `profile`, `explain`).
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.optarg(name), Some(Term::Datum(value)) if value.is_truthy())
    }
}

/// Options of a query that are not options of a term.
///
/// The last ones are meant for drivers themselves; some drivers send them nevertheless.
const RUN_OPTIONS: [&str; 19] = [
    "db",
    "noreply",
    "profile",
    "explain",
    "read_mode",
    "durability",
    "array_limit",
    "changefeed_queue_size",
    "min_batch_rows",
    "max_batch_rows",
    "max_batch_bytes",
    "max_batch_seconds",
    "first_batch_scaledown_factor",
    "use_outdated",
    "time_format",
    "binary_format",
    "group_format",
    "identifier_format",
    "user",
];

/// Parses a query: `[kind, term, options]`.
///
/// Fails with a CLIENT error if the bytes are not a query, and with a COMPILE error if the term is not legal.
/// Source: docs/reql-spec.md sections 1.2, 1.4, 1.5, 2.2 and 6.
pub fn parse_query(bytes: &[u8]) -> Result<Query, CompileError> {
    parse_shared_query(Bytes::copy_from_slice(bytes))
}

/// Like [`parse_query`], for bytes that the strings of the query may share.
pub fn parse_shared_query(bytes: Bytes) -> Result<Query, CompileError> {
    let source = Text::try_from(bytes).map_err(|_| not_json())?;
    let tape = Tape::parse(&source).map_err(|_| not_json())?;
    let root = tape.root();
    let Some(mut elements) = root.items() else {
        return Err(unparsable("a query to be an array", root.node()));
    };
    let count = elements.len();
    if !(1..=3).contains(&count) {
        return Err(envelope(&format!(
            "Expected 1 to 3 elements in the top-level query, but found {count}."
        )));
    }
    let kind = query_kind(elements.next())?;
    let (term, options) = (elements.next(), elements.next());
    let (QueryKind::Start, Some(term)) = (kind, term) else {
        if kind == QueryKind::Start {
            return Err(envelope("Expected a term in a START query, but found nothing."));
        }
        return Ok(Query { kind, term: None, optargs: Vec::new(), source });
    };
    // Folded arrays would bypass an array limit of the query.
    let limited = options.and_then(|options| options.members());
    let fold = !limited.into_iter().flatten().any(|(name, _)| name == "array_limit");
    let term = Compiler::of_query(&source, fold)
        .root(term)
        .map_err(|error| compile::walk::check(term).err().unwrap_or(error))?;
    let optargs = options.map(|options| global_options(options, &source, fold)).transpose()?;
    Ok(Query { kind, term: Some(term), optargs: optargs.unwrap_or_default(), source })
}

fn query_kind(element: Option<Value<'_, '_>>) -> Result<QueryKind, CompileError> {
    let node = element.map_or(&Node::Null, Value::node);
    let Node::Number(number, _) = *node else {
        return Err(unparsable("a query type as a number", node));
    };
    [
        (1.0, QueryKind::Start),
        (2.0, QueryKind::Continue),
        (3.0, QueryKind::Stop),
        (4.0, QueryKind::NoreplyWait),
        (5.0, QueryKind::ServerInfo),
    ]
    .into_iter()
    .find_map(|(id, kind)| (id == number).then_some(kind))
    .ok_or_else(|| envelope(&format!("Unrecognized QueryType: {}.", datum::format_number(number))))
}

fn global_options(
    options: Value<'_, '_>,
    source: &Text,
    fold: bool,
) -> Result<Vec<(Text, Term)>, CompileError> {
    let members =
        options.members().ok_or_else(|| unparsable("global optargs as an object", options.node()))?;
    let mut optargs = Vec::new();
    for (name, value) in members {
        if !is_global_option(name) {
            let message = format!("Unrecognized global optional argument `{name}`.");
            return Err(CompileError::compile(message));
        }
        let term = Compiler::new(source, fold).root(value)?;
        if is_named(&optargs, name) {
            let message = format!("Duplicate global optional argument: `{name}`.");
            return Err(CompileError::compile(message));
        }
        optargs.push((Text::from(&**name), term));
    }
    Ok(optargs)
}

fn is_global_option(name: &str) -> bool {
    RUN_OPTIONS.contains(&name) || signature::all().iter().any(|row| row.optargs.contains(&name))
}

fn unparsable(expected: &str, found: &Node<'_>) -> CompileError {
    envelope(&format!("Expected {expected}, but found {}.", found.type_name()))
}

fn envelope(message: &str) -> CompileError {
    CompileError::client(format!("Server could not parse query: {message}"))
}

/// Parses a single term outside a query, for stored functions and tests.
pub fn parse_term(bytes: &[u8]) -> Result<Term, CompileError> {
    parse_term_within(bytes, Vec::new())
}

/// Like [`parse_term`], for a term inside functions with these parameters, outermost first.
pub(crate) fn parse_term_within(bytes: &[u8], functions: Vec<Vec<VarId>>) -> Result<Term, CompileError> {
    let source = Text::try_from(Bytes::copy_from_slice(bytes)).map_err(|_| not_json())?;
    let tape = Tape::parse(&source).map_err(|_| not_json())?;
    Compiler::within(&source, functions).root(tape.root())
}

/// Like [`parse_term_within`], for a term that is only printed: constants are the terms that make them, and `r.row` is a term.
pub(crate) fn parse_term_for_print(bytes: &[u8], functions: Vec<Vec<VarId>>) -> Result<Term, CompileError> {
    let source = Text::try_from(Bytes::copy_from_slice(bytes)).map_err(|_| not_json())?;
    let tape = Tape::parse(&source).map_err(|_| not_json())?;
    Compiler::for_print(&source, functions).root(tape.root())
}

fn not_json() -> CompileError {
    CompileError::client("Client is buggy (failed to deserialize query).")
}
