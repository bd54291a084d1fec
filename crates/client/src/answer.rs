//! Parses responses, completely or only their first bytes, and classifies failures.

use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// SUCCESS_ATOM
pub const ATOM: u8 = 1;
/// SUCCESS_SEQUENCE
pub const SEQUENCE: u8 = 2;
/// SUCCESS_PARTIAL
pub const PARTIAL: u8 = 3;

/// Why an operation failed; the classes of `docs/formats/bench-result.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    NotFound,
    ClientError,
    CompileError,
    Internal,
    ResourceLimit,
    QueryLogic,
    NonExistence,
    OpFailed,
    OpIndeterminate,
    User,
    Permission,
    WriteError,
    WrongAnswer,
    ConnectionLost,
    NoAnswer,
}

impl FailureKind {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::NotFound => "NOT_FOUND",
            FailureKind::ClientError => "CLIENT_ERROR",
            FailureKind::CompileError => "COMPILE_ERROR",
            FailureKind::Internal => "INTERNAL",
            FailureKind::ResourceLimit => "RESOURCE_LIMIT",
            FailureKind::QueryLogic => "QUERY_LOGIC",
            FailureKind::NonExistence => "NON_EXISTENCE",
            FailureKind::OpFailed => "OP_FAILED",
            FailureKind::OpIndeterminate => "OP_INDETERMINATE",
            FailureKind::User => "USER",
            FailureKind::Permission => "PERMISSION_ERROR",
            FailureKind::WriteError => "WRITE_ERROR",
            FailureKind::WrongAnswer => "WRONG_ANSWER",
            FailureKind::ConnectionLost => "CONNECTION_LOST",
            FailureKind::NoAnswer => "NO_ANSWER",
        }
    }
}

/// A failed operation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {message}", kind.name())]
pub struct Failure {
    /// Its class.
    pub kind: FailureKind,
    /// The message of the server or of the check.
    pub message: String,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }
}

/// A parsed response.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// Response type.
    pub t: u8,
    /// Results.
    #[serde(default)]
    pub r: Vec<Value>,
    /// Error type.
    #[serde(default)]
    pub e: Option<u32>,
}

/// A response whose results stay text.
#[derive(Debug, Deserialize)]
pub struct RawAnswer<'a> {
    /// Response type.
    pub t: u8,
    /// Results.
    #[serde(borrow, default)]
    pub r: Vec<&'a RawValue>,
}

/// Parses a response without its results; an error response becomes a [`Failure`].
pub fn parse_raw(body: &[u8]) -> Result<RawAnswer<'_>, Failure> {
    let answer: RawAnswer<'_> = serde_json::from_slice(body)
        .map_err(|e| Failure::new(FailureKind::WrongAnswer, format!("the answer is not a response: {e}")))?;
    match answer.t {
        1..=5 => Ok(answer),
        _ => Err(parse(body).err().unwrap_or_else(|| Failure::new(FailureKind::Internal, "no message"))),
    }
}

/// The response type, if it is the first member, where every server writes it.
pub fn type_at_head(body: &[u8]) -> Option<u8> {
    let digits = body.strip_prefix(br#"{"t":"#)?;
    let first = digits.first()?.checked_sub(b'0').filter(|d| *d <= 9)?;
    match digits.get(1)? {
        b',' | b'}' => Some(first),
        second => {
            let second = second.checked_sub(b'0').filter(|d| *d <= 9)?;
            Some(first * 10 + second)
        }
    }
}

/// Parses a whole response; an error response becomes a [`Failure`].
pub fn parse(body: &[u8]) -> Result<Answer, Failure> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|e| Failure::new(FailureKind::WrongAnswer, format!("the answer is not a response: {e}")))?;
    match answer.t {
        1..=5 => Ok(answer),
        _ => Err(failure_of(&answer)),
    }
}

/// Whether a response is the single value null, according to its bytes.
pub fn is_null_atom(body: &[u8]) -> bool {
    body.starts_with(br#"{"t":1,"r":[null]"#)
}

/// Whether the result of a write certainly has no errors, according to its bytes.
pub fn counts_no_errors(body: &[u8]) -> bool {
    memmem::find(body, br#""errors":0,"#).is_some()
}

/// Parses the result object of a write; a result with errors becomes a [`Failure`].
pub fn check_write(body: &[u8]) -> Result<Value, Failure> {
    let mut answer = parse(body)?;
    let Some(result) = answer.r.pop().filter(Value::is_object) else {
        return Err(Failure::new(FailureKind::WrongAnswer, "a write answered no object"));
    };
    if result["errors"].as_u64() == Some(0) {
        return Ok(result);
    }
    let message = result["first_error"].as_str().unwrap_or("no first_error");
    Err(Failure::new(FailureKind::WriteError, first_line(message)))
}

/// The first line of a message, without the document or query that may follow it.
fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default().trim_end_matches(':')
}

fn failure_of(answer: &Answer) -> Failure {
    let kind = match (answer.t, answer.e) {
        (16, _) => FailureKind::ClientError,
        (17, _) => FailureKind::CompileError,
        (_, Some(2_000_000)) => FailureKind::ResourceLimit,
        (_, Some(3_000_000)) => FailureKind::QueryLogic,
        (_, Some(3_100_000)) => FailureKind::NonExistence,
        (_, Some(4_100_000)) => FailureKind::OpFailed,
        (_, Some(4_200_000)) => FailureKind::OpIndeterminate,
        (_, Some(5_000_000)) => FailureKind::User,
        (_, Some(6_000_000)) => FailureKind::Permission,
        _ => FailureKind::Internal,
    };
    let message = answer.r.first().and_then(Value::as_str).unwrap_or("no message");
    Failure::new(kind, first_line(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_tells_the_type() {
        assert_eq!(type_at_head(br#"{"t":1,"r":[null]}"#), Some(1));
        assert_eq!(type_at_head(br#"{"t":18,"e":1}"#), Some(18));
        assert_eq!(type_at_head(br#"{"r":[],"t":1}"#), None);
        assert_eq!(type_at_head(b""), None);
    }

    #[test]
    fn error_responses_keep_their_class_and_text() {
        let body = br#"{"t":18,"e":4100000,"r":["Table `a.b` does not exist."],"b":[]}"#;
        let failure = parse(body).expect_err("an error");
        assert_eq!(failure.kind, FailureKind::OpFailed);
        assert_eq!(failure.message, "Table `a.b` does not exist.");
        let long = parse(br#"{"t":18,"e":3100000,"r":["No attribute `x` in object:\n{\n}"]}"#);
        assert_eq!(long.expect_err("an error").message, "No attribute `x` in object");
        let compile = parse(br#"{"t":17,"r":["x"],"b":[]}"#).expect_err("an error");
        assert_eq!(compile.kind, FailureKind::CompileError);
    }

    #[test]
    fn a_write_with_errors_is_a_failure() {
        let good = br#"{"t":1,"r":[{"deleted":0,"errors":0,"inserted":1}],"n":[]}"#;
        assert!(counts_no_errors(good) && check_write(good).is_ok());
        let bad = br#"{"t":1,"r":[{"errors":2,"first_error":"Duplicate"}]}"#;
        assert!(!counts_no_errors(bad));
        assert_eq!(check_write(bad).expect_err("errors").message, "Duplicate");
    }
}
