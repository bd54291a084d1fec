//! A query: its term and its array limit.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value as Json};

/// The prefix of the array limit in the text of a query.
const ARRAY_LIMIT: &str = "array_limit=";

/// A query as it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub term: Json,
    pub array_limit: Option<Json>,
}

impl Query {
    /// The options of the whole query, as they are sent.
    #[must_use]
    pub fn options(&self) -> Map<String, Json> {
        self.array_limit.iter().map(|limit| ("array_limit".to_owned(), limit.clone())).collect()
    }

    /// The same with another term.
    #[must_use]
    pub fn with_term(&self, term: Json) -> Query {
        Query { term, array_limit: self.array_limit.clone() }
    }
}

impl From<Json> for Query {
    fn from(term: Json) -> Query {
        Query { term, array_limit: None }
    }
}

/// The term, behind the limit if there is one, as [`FromStr`] reads it.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(limit) = &self.array_limit {
            write!(f, "{ARRAY_LIMIT}{limit} ")?;
        }
        write!(f, "{}", self.term)
    }
}

impl FromStr for Query {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Query, serde_json::Error> {
        let limited = text.strip_prefix(ARRAY_LIMIT).and_then(|text| text.split_once(' '));
        let Some((limit, term)) = limited else { return Ok(serde_json::from_str::<Json>(text)?.into()) };
        Ok(Query { term: serde_json::from_str(term)?, array_limit: Some(serde_json::from_str(limit)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() -> Result<(), serde_json::Error> {
        for text in ["[15,[\"t\"]]", "array_limit=4 [2,[1,2]]", "array_limit=null {\"a\":1}"] {
            assert_eq!(text.parse::<Query>()?.to_string(), text);
        }
        Ok(())
    }
}
