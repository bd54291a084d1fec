//! Options of `http`, besides the request itself.

use datum::Object;

use super::request::HttpRequest;

/// The conversion of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultFormat {
    /// By its content type.
    Auto,
    Json,
    /// JSON as the argument of a call.
    Jsonp,
    /// A string.
    Text,
    /// Bytes.
    Binary,
}

pub(crate) struct HttpOptions {
    /// The request, without its URL.
    pub request: HttpRequest,
    /// Parameters to append to the URL.
    pub params: Object,
    /// The conversion of the body.
    pub format: ResultFormat,
}
