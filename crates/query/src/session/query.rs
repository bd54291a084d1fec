//! Queries as sessions run them: a term with the options of the whole query.

use std::sync::Arc;

use datum::{Bytes, Text};
use reql::{CompileError, EvalError, Term, wire};

/// A query: a term, and the options of the whole query.
///
/// RethinkDB's protocol sends it as bytes ([`Query::parse`]); other protocols may build the term ([`Query::new`]).
#[derive(Debug)]
pub struct Query {
    /// The term to evaluate.
    pub(crate) term: Term,
    /// Options of the whole query, each a term.
    pub(crate) options: Vec<(Text, Term)>,
    /// The text of a parsed query.
    pub(super) source: Option<Text>,
}

impl Query {
    /// A query of a term that `reql` would accept: terms have a legal number of arguments, and variables are bound.
    #[must_use]
    pub fn new(term: Term, options: Vec<(Text, Term)>) -> Query {
        Query { term, options, source: None }
    }

    /// Parses the body of a START query of RethinkDB's protocol: `[1, term, options]`. The strings of the query share
    /// the bytes.
    ///
    /// Fails with a CLIENT error if the bytes are no such query, and with a COMPILE error if the term is not legal.
    pub fn parse(body: Bytes) -> Result<Query, CompileError> {
        let wire::Query { term, optargs, source, .. } = wire::parse_shared_query(body)?;
        match term {
            Some(term) => Ok(Query { term, options: optargs, source: Some(source) }),
            None => Err(CompileError::client("Query has no term.")),
        }
    }

    /// The term to evaluate.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Whether an option that is read before the evaluation is literally true (`noreply`, `profile`, `explain`).
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        let option = self.options.iter().find(|(key, _)| key == name);
        matches!(option, Some((_, Term::Datum(value))) if value.is_truthy())
    }
}

/// A query that may have to run again.
pub(crate) enum KeptQuery {
    /// The text that the query was parsed from. It is smaller than the parsed query, and is seldom parsed again.
    Text(Text),
    /// A query without a text.
    Parsed(Arc<Query>),
}

impl KeptQuery {
    /// Keeps `query`.
    pub fn of(query: &Arc<Query>) -> KeptQuery {
        match &query.source {
            Some(source) => KeptQuery::Text(source.clone()),
            None => KeptQuery::Parsed(query.clone()),
        }
    }

    /// The query; its text is parsed again.
    pub fn query(&self) -> Result<Arc<Query>, EvalError> {
        match self {
            KeptQuery::Text(source) => {
                let query = Query::parse(source.clone().into_bytes());
                query.map(Arc::new).map_err(|error| EvalError::internal(error.to_string()))
            }
            KeptQuery::Parsed(query) => Ok(query.clone()),
        }
    }
}
