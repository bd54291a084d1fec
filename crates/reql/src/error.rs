//! Errors of evaluation.
//!
//! The texts are RethinkDB's, letter for letter: drivers and users match on them. Frequent errors, which `filter`
//! and `default` catch by the million, are formatted only when their text is read.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use datum::{Datum, Kind, Object, Text};

use crate::backtrace::{Backtrace, Frame, TermPath};
use crate::signature::Op;

/// The class that clients see, which also determines what `default` and `filter` catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// An error of the server.
    Internal,
    /// A limit on arrays, groups or memory was reached.
    ResourceLimit,
    /// Wrong types or invalid arguments.
    QueryLogic,
    /// A field, an index or an item does not exist; caught by `default` and `filter`.
    NonExistence,
    /// The operation was certainly not carried out.
    OpFailed,
    /// The operation may or may not have been carried out.
    OpIndeterminate,
    /// Raised by the query with `r.error`.
    User,
    /// The user lacks a permission.
    Permission,
}

impl ErrorClass {
    /// The name of the class in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorClass::Internal => "INTERNAL",
            ErrorClass::ResourceLimit => "RESOURCE_LIMIT",
            ErrorClass::QueryLogic => "QUERY_LOGIC",
            ErrorClass::NonExistence => "NON_EXISTENCE",
            ErrorClass::OpFailed => "OP_FAILED",
            ErrorClass::OpIndeterminate => "OP_INDETERMINATE",
            ErrorClass::User => "USER",
            ErrorClass::Permission => "PERMISSION_ERROR",
        }
    }
}

/// An error of evaluation: class, message, and the path to the term that failed.
#[derive(Clone)]
pub struct EvalError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    class: ErrorClass,
    message: Message,
    backtrace: Backtrace,
    empty: bool,
}

/// A message, or the values needed to format it.
#[derive(Clone)]
enum Message {
    Text(Cow<'static, str>),
    NoAttribute { field: Text, object: Object },
    AttributeOfPattern(Text),
    ExpectedType { expected: &'static str, found: Kind },
    OutOfBounds(i64),
}

/// The text of [`EvalError::not_ready`].
const NOT_READY: &str = "The changefeed has no element now.";

impl EvalError {
    pub fn new(class: ErrorClass, text: impl Into<Cow<'static, str>>) -> Self {
        Self::with_message(class, Message::Text(text.into()))
    }

    fn with_message(class: ErrorClass, message: Message) -> Self {
        EvalError(Box::new(Inner { class, message, backtrace: Backtrace::default(), empty: false }))
    }

    /// QUERY_LOGIC: a mistake in the query.
    pub fn logic(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::QueryLogic, text)
    }

    /// NON_EXISTENCE: something is missing; caught by `default` and `filter`.
    pub fn non_existence(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::NonExistence, text)
    }

    /// RESOURCE_LIMIT: a limit was reached.
    pub fn resource(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::ResourceLimit, text)
    }

    /// USER: raised by the query itself.
    pub fn user(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::User, text)
    }

    /// OP_FAILED: a table, database, index or server is not in the required state.
    pub fn op_failed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::OpFailed, text)
    }

    /// OP_FAILED: the term is not implemented in this version.
    #[must_use]
    pub fn not_yet(op: Op) -> Self {
        Self::op_failed(format!(
            "The term `{}` is not available yet in this version.",
            op.name().to_lowercase()
        ))
    }

    /// OP_INDETERMINATE: a write with an unknown outcome.
    pub fn op_indeterminate(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::OpIndeterminate, text)
    }

    /// PERMISSION_ERROR: the user lacks a permission.
    pub fn permission(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::Permission, text)
    }

    /// INTERNAL: an error of the server.
    pub fn internal(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::Internal, text)
    }

    /// QUERY_LOGIC, or NON_EXISTENCE if the offending value is null.
    pub fn typed(found: &Datum, text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(class_for(found), text)
    }

    /// `Expected type <expected> but found <type of found>.`
    #[must_use]
    pub fn type_error(expected: &'static str, found: &Datum) -> Self {
        let message = Message::ExpectedType { expected, found: found.kind() };
        Self::with_message(class_for(found), message)
    }

    /// `Expected type <expected> but found <actual>:` followed by the value, for mismatches
    /// between values that are not datums (TABLE, FUNCTION, SEQUENCE, …).
    #[must_use]
    pub fn value_type_error(expected: &str, actual: &str, printed: &str) -> Self {
        Self::logic(format!("Expected type {expected} but found {actual}:\n{printed}"))
    }

    /// A datum where a function is required.
    #[must_use]
    pub fn not_a_function(found: &Datum) -> Self {
        Self::typed(found, format!("Expected type FUNCTION but found DATUM:\n{}", found.pretty()))
    }

    /// `No attribute <field> in object:` followed by the object.
    #[must_use]
    pub fn no_attribute(field: &Text, object: &Object) -> Self {
        let message = Message::NoAttribute { field: field.clone(), object: object.clone() };
        Self::with_message(ErrorClass::NonExistence, message)
    }

    /// `No attribute <field> in object.`, without the object: the message for a pattern of a filter.
    #[must_use]
    pub fn no_attribute_of_pattern(field: &Text) -> Self {
        Self::with_message(ErrorClass::NonExistence, Message::AttributeOfPattern(field.clone()))
    }

    #[must_use]
    pub fn out_of_bounds(index: i64) -> Self {
        Self::with_message(ErrorClass::NonExistence, Message::OutOfBounds(index))
    }

    /// `Cannot convert <type> to SEQUENCE`
    #[must_use]
    pub fn not_a_sequence(found: &Datum) -> Self {
        Self::typed(found, format!("Cannot convert {} to SEQUENCE", found.kind().name()))
    }

    /// Groups where a sequence is required.
    #[must_use]
    pub fn grouped_stream() -> Self {
        Self::logic("Cannot treat the output of `group` as a stream (did you mean to `ungroup`?).")
    }

    /// An array with more than `limit` items.
    #[must_use]
    pub fn array_limit(limit: usize) -> Self {
        Self::resource(format!(
            "Array over size limit `{limit}`.  To raise the number of allowed elements, modify the \
             `array_limit` option to `.run` (not available in the Data Explorer), or use an index."
        ))
    }

    /// The query exceeded its memory budget.
    #[must_use]
    pub fn memory(over: io::memory::OverBudget) -> Self {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        Self::resource(format!(
            "The query needs more memory than is left: {} of {} MiB for queries are in use.  Ask for less at \
             a time, or raise the `--memory-limit` of the server.",
            mebibytes(over.reserved),
            mebibytes(over.limit)
        ))
    }

    /// `r.error()` without a message, which `default` may replace with the error it caught.
    #[must_use]
    pub fn empty_error() -> Self {
        let mut error = Self::logic("Empty ERROR term outside a default block.");
        error.0.empty = true;
        error
    }

    /// Whether this is `r.error()` without a message.
    #[must_use]
    pub fn is_empty_error(&self) -> bool {
        self.0.empty
    }

    /// A value with more levels than can be walked through.
    #[must_use]
    pub fn too_deep() -> Self {
        Self::resource("A value is nested too deeply.")
    }

    #[must_use]
    pub fn cancelled() -> Self {
        Self::op_indeterminate("Query interrupted.  Did you shut down the server?")
    }

    /// A changefeed has no element now. Only readers that asked not to wait get this error; no client does.
    #[must_use]
    pub fn not_ready() -> Self {
        Self::internal(NOT_READY)
    }

    /// Whether it is [`EvalError::not_ready`]: the same read may succeed later.
    #[must_use]
    pub fn is_not_ready(&self) -> bool {
        matches!(&self.0.message, Message::Text(text) if text == NOT_READY)
    }

    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.0.class
    }

    /// Whether `default` and `filter` catch it.
    #[must_use]
    pub fn is_non_existence(&self) -> bool {
        self.0.class == ErrorClass::NonExistence
    }

    /// The text a client sees.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.0.message {
            Message::Text(text) => text.to_string(),
            Message::NoAttribute { field, object } => {
                let printed = Datum::Object(object.clone()).pretty();
                format!("No attribute `{field}` in object:\n{printed}")
            }
            Message::AttributeOfPattern(field) => format!("No attribute `{field}` in object."),
            Message::ExpectedType { expected, found } => {
                format!("Expected type {expected} but found {}.", found.name())
            }
            Message::OutOfBounds(index) => format!("Index out of bounds: {index}"),
        }
    }

    /// The path from the root of the query to the term that failed.
    #[must_use]
    pub fn backtrace(&self) -> &Backtrace {
        &self.0.backtrace
    }

    /// The same error, seen from the enclosing term, whose argument `frame` it came from.
    #[must_use]
    pub fn at(mut self, frame: impl Into<Frame>) -> Self {
        self.0.backtrace.push_outer(frame.into());
        self
    }

    /// The same error, raised at the end of `path`, whose innermost frame is the first.
    #[must_use]
    pub fn at_end_of(self, path: &[Frame]) -> Self {
        path.iter().cloned().fold(self, EvalError::at)
    }

    /// The same error after it left the function at `path`: enclosing terms add no more frames.
    #[must_use]
    pub fn anchored(mut self, path: Option<&Arc<TermPath>>) -> Self {
        if let Some(path) = path {
            self.0.backtrace.anchor(path);
        }
        self
    }

    /// The same error with a backtrace that stays empty: RethinkDB raises it where rows are read, outside any term.
    #[must_use]
    pub fn frameless(mut self) -> Self {
        self.0.backtrace = Backtrace::frameless();
        self
    }

    /// The same error for an operation that may have been carried out in part: OP_FAILED becomes OP_INDETERMINATE.
    /// Mistakes in the query keep their class.
    #[must_use]
    pub fn indeterminate(mut self) -> Self {
        if self.0.class == ErrorClass::OpFailed {
            self.0.class = ErrorClass::OpIndeterminate;
        }
        self
    }

    /// The same error with `prefix` before its text.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        self.0.message = Message::Text(format!("{prefix}{}", self.message()).into());
        self
    }
}

fn class_for(found: &Datum) -> ErrorClass {
    match found {
        Datum::Null => ErrorClass::NonExistence,
        _ => ErrorClass::QueryLogic,
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl fmt::Debug for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.class().name(), self.backtrace(), self.message())
    }
}

impl std::error::Error for EvalError {}

/// A query that was refused before it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// CLIENT_ERROR: the bytes are not a query.
    Client {
        /// The text a client sees.
        message: String,
    },
    /// COMPILE_ERROR: the query is not a legal tree of terms.
    Compile {
        /// The text a client sees.
        message: String,
        /// The path from the root to the invalid term.
        backtrace: Backtrace,
    },
}

impl CompileError {
    /// A CLIENT_ERROR with this text.
    pub fn client(message: impl Into<String>) -> Self {
        CompileError::Client { message: message.into() }
    }

    /// A COMPILE_ERROR with this text, at the root.
    pub fn compile(message: impl Into<String>) -> Self {
        CompileError::Compile { message: message.into(), backtrace: Backtrace::default() }
    }

    /// The same error, seen from the enclosing term.
    #[must_use]
    pub fn at(mut self, frame: impl Into<Frame>) -> Self {
        if let CompileError::Compile { backtrace, .. } = &mut self {
            backtrace.push_outer(frame.into());
        }
        self
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (CompileError::Client { message } | CompileError::Compile { message, .. }) = self;
        f.write_str(message)
    }
}

impl std::error::Error for CompileError {}

/// See [`EvalError::not_a_sequence`].
#[must_use]
pub fn not_a_sequence(found: &Datum) -> EvalError {
    EvalError::not_a_sequence(found)
}
