//! Paging: each request depends on the response to the one before.

use datum::{Datum, ObjectBuilder, Text};
use reql::stream::Items;
use reql::{Closure, Env, EvalError};

use super::exchange::{Answer, Exchange};

/// How the next page is found.
pub(crate) enum Page {
    /// By a function of `{params, header, body}`.
    Func(Closure),
    /// By the header's link to the next page.
    LinkNext,
    /// There is only one page.
    Nothing,
}

/// The items of all pages: elements of arrays, and other bodies as they are.
pub(crate) struct Pages {
    exchange: Exchange,
    page: Page,
    /// Requests that may still be sent; `None` for no limit.
    left: Option<u64>,
    more: bool,
    ready: std::vec::IntoIter<Datum>,
}

impl Pages {
    /// Reads at most `limit` pages, or all.
    pub fn new(exchange: Exchange, page: Page, limit: Option<u64>) -> Pages {
        Pages { exchange, page, left: limit, more: limit != Some(0), ready: Vec::new().into_iter() }
    }

    fn fetch(&mut self, env: &Env<'_>) -> Result<(), EvalError> {
        let answer = self.exchange.send(env.cancel)?;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.more = self.left != Some(0) && self.next_page(&answer, env)?;
        self.ready = match answer.body {
            Datum::Array(items) => items.into_vec().into_iter(),
            other => vec![other].into_iter(),
        };
        Ok(())
    }

    /// Sets the URL of the next page; false after the last.
    fn next_page(&mut self, answer: &Answer, env: &Env<'_>) -> Result<bool, EvalError> {
        let closure = match &self.page {
            Page::Nothing => return Ok(false),
            Page::LinkNext => return Ok(self.follow(next_link(&answer.header))),
            Page::Func(closure) => closure.clone(),
        };
        let mut context = ObjectBuilder::new();
        context.insert(Text::from_static("params"), Datum::Object(self.exchange.params().clone()));
        context.insert(Text::from_static("header"), answer.header.clone());
        context.insert(Text::from_static("body"), answer.body.clone());
        let context = Datum::Object(context.build());
        let result = closure.call(std::slice::from_ref(&context), env);
        result.and_then(|result| self.apply(result)).map_err(|error| {
            let text = self.exchange.failure(&error.message());
            let shown = context.pretty();
            let text = format!("{text}\nError occurred during `page` called with:\n{shown}\n");
            EvalError::new(error.class(), text)
        })
    }

    fn apply(&mut self, result: Datum) -> Result<bool, EvalError> {
        let fields = match result {
            Datum::Null | Datum::String(_) => return self.continue_with(result),
            Datum::Object(fields) => fields,
            other => {
                let kind = other.kind().name();
                return Err(EvalError::logic(format!(
                    "Expected `page` to return an OBJECT, but found {kind}."
                )));
            }
        };
        let (url, params) = (fields.get("url"), fields.get("params"));
        if url.is_none() && params.is_none() {
            return Err(EvalError::logic(
                "OBJECT returned by `page` must contain `url` and/or `params` fields.",
            ));
        }
        if let Some(params) = params {
            self.exchange.add_params(params)?;
        }
        url.map_or(Ok(true), |url| self.continue_with(url))
    }

    fn continue_with(&mut self, url: Datum) -> Result<bool, EvalError> {
        match url {
            Datum::Null => Ok(false),
            Datum::String(url) => Ok(self.follow(Some(url))),
            other => {
                let kind = other.kind().name();
                Err(EvalError::logic(format!(
                    "Expected `url` in OBJECT returned by `page` to be a STRING or NULL, but found {kind}."
                )))
            }
        }
    }

    fn follow(&mut self, url: Option<Text>) -> bool {
        let found = url.is_some();
        if let Some(url) = url {
            self.exchange.set_url(url.to_string());
        }
        found
    }
}

impl Items for Pages {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(item) = self.ready.next() {
                return Ok(Some(item));
            }
            if !self.more {
                return Ok(None);
            }
            env.check_cancel()?;
            self.fetch(env)?;
        }
    }
}

/// The link to the next page.
fn next_link(header: &Datum) -> Option<Text> {
    let Datum::Object(header) = header else { return None };
    let Some(Datum::Object(links)) = header.get("link") else { return None };
    match links.get("rel=\"next\"") {
        Some(Datum::String(url)) => Some(url),
        _ => None,
    }
}
