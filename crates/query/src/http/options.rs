//! What is asked for beside the request itself.

use datum::Object;

use super::request::HttpRequest;

/// What is made of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultFormat {
    /// What its content type says.
    Auto,
    /// JSON.
    Json,
    /// JSON as the argument of a call.
    Jsonp,
    /// A string.
    Text,
    /// Bytes.
    Binary,
}

/// The options of one `http`.
pub(crate) struct HttpOptions {
    /// The request, still without URL.
    pub request: HttpRequest,
    /// What is appended to the URL.
    pub params: Object,
    /// What is made of the body.
    pub format: ResultFormat,
}
