//! HTTP requests of a query, with their responses as values.

use datum::{Datum, Object};
use reql::{Cancel, EvalError};

use super::body;
use super::link::header_datum;
use super::options::HttpOptions;
use super::params::{encoded, url_params};
use super::request::{HttpFailure, HttpResponse, HttpSession, Method};

/// Requests that differ only in URL and parameters.
pub(crate) struct Exchange {
    session: Box<dyn HttpSession>,
    url: String,
    options: HttpOptions,
}

/// A response as values.
pub(crate) struct Answer {
    pub header: Datum,
    pub body: Datum,
}

impl Exchange {
    /// Requests to `url`.
    pub fn new(session: Box<dyn HttpSession>, url: String, options: HttpOptions) -> Exchange {
        Exchange { session, url, options }
    }

    /// The parameters of the next request.
    pub fn params(&self) -> &Object {
        &self.options.params
    }

    /// Changes the URL of the next request.
    pub fn set_url(&mut self, url: String) {
        self.url = url;
    }

    /// Adds parameters; they replace those with the same name.
    pub fn add_params(&mut self, params: Datum) -> Result<(), EvalError> {
        let mut all = self.options.params.to_builder();
        for (name, value) in url_params(params)?.iter() {
            all.insert(name, value);
        }
        self.options.params = all.build();
        Ok(())
    }

    /// Sends the request. Failures of the network or the server are NON_EXISTENCE errors, which `default` catches.
    pub fn send(&mut self, cancel: &Cancel) -> Result<Answer, EvalError> {
        let mut request = self.options.request.clone();
        request.url = with_params(&self.url, &self.options.params);
        match self.session.send(&request, cancel) {
            Ok(response) => self.read(&response),
            Err(HttpFailure::Cancelled) => Err(EvalError::cancelled()),
            Err(HttpFailure::TimedOut) => {
                let millis = request.timeout.as_millis();
                let why = format!("timed out after {}.{:03} seconds", millis / 1000, millis % 1000);
                Err(self.failed(&why, None))
            }
            Err(HttpFailure::Failed(why)) => Err(self.failed(&why, Some((&Datum::Null, &Datum::Null)))),
        }
    }

    /// `Error in HTTP <METHOD> of `<url>`: <why>.`
    pub fn failure(&self, why: &str) -> String {
        format!("Error in HTTP {} of `{}`: {why}.", self.options.request.method.name(), self.url)
    }

    fn failed(&self, why: &str, shown: Option<(&Datum, &Datum)>) -> EvalError {
        let mut text = self.failure(why);
        if let Some((header, body)) = shown {
            text.push_str(&format!("\nheader:\n{}\nbody:\n{}", header.pretty(), body.pretty()));
        }
        EvalError::non_existence(text)
    }

    fn read(&self, response: &HttpResponse) -> Result<Answer, EvalError> {
        let bad_header = |why: String| self.failed(&why, Some((&Datum::Null, &Datum::Null)));
        let header = header_datum(&response.headers).map_err(bad_header)?;
        if !(200..300).contains(&response.status) {
            let shown = if response.body.is_empty() { Datum::Null } else { body::text(&response.body) };
            let why = format!("status code {}", response.status);
            return Err(self.failed(&why, Some((&header, &shown))));
        }
        if self.options.request.method == Method::Head {
            return Ok(Answer { header, body: Datum::Null });
        }
        let is_type = |(name, _): &&(String, String)| name == "content-type";
        let content_type = response.headers.iter().rfind(is_type).map_or("", |(_, value)| value);
        match body::value(&response.body, self.options.format, content_type) {
            Ok(body) => Ok(Answer { header, body }),
            Err(bad) => Err(self.failed(&bad.why, Some((&header, &bad.shown)))),
        }
    }
}

/// Appends parameters to a URL that may have some.
fn with_params(url: &str, params: &Object) -> String {
    let params = encoded(params);
    if params.is_empty() {
        return url.to_owned();
    }
    let joint = match (url.rfind('?'), url.rfind('/')) {
        (None, None) => "/?",
        (None, Some(_)) => "?",
        (Some(mark), Some(slash)) if slash > mark => "?",
        (Some(_), Some(_)) => "&",
        (Some(_), None) => "",
    };
    format!("{url}{joint}{params}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_appended_where_they_belong() {
        let fields = [("a b", Datum::from("%ü")), ("n", Datum::Number(135.5)), ("z", Datum::Null)];
        let params: Object = fields.into_iter().map(|(k, v)| (datum::Text::from_static(k), v)).collect();
        for (url, expected) in [
            ("example.org", "example.org/?"),
            ("example.org/page", "example.org/page?"),
            ("example.org/page?id=0", "example.org/page?id=0&"),
            ("example.org/page?id=0/page", "example.org/page?id=0/page?"),
        ] {
            let expected = format!("{expected}a%20b=%25%C3%BC&n=135.5&z=");
            assert_eq!(with_params(url, &params), expected);
            assert_eq!(with_params(url, &Object::default()), url);
        }
    }
}
