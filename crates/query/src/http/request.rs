//! HTTP requests and responses, and the trait that sends them.

use std::time::Duration;

use reql::Cancel;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const ALL: [Method; 6] =
        [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete];

    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

/// Credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Sent with the first request.
    Basic {
        user: String,
        /// The password.
        pass: String,
    },
    /// Sent in response to the server's challenge.
    Digest {
        user: String,
        /// The password.
        pass: String,
    },
}

/// A request, with the limits for retries and redirects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: Method,
    /// The URL with its parameters; without a scheme it means `http`.
    pub url: String,
    /// Headers of the query, names and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The credentials.
    pub auth: Option<Auth>,
    /// Most attempts after temporary failures; 0 does not even send the first one.
    pub attempts: u64,
    /// Most redirects to follow.
    pub redirects: u32,
    /// The timeout for all attempts together.
    pub timeout: Duration,
    /// Whether to verify the server's certificate.
    pub verify: bool,
    /// Most bytes of the response body, decompressed.
    pub body_bytes_max: u64,
}

/// The response to the last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    /// The headers in their order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpFailure {
    /// The timeout was exceeded.
    TimedOut,
    Cancelled,
    /// Any other failure, as a message.
    Failed(String),
}

/// Sends HTTP requests for queries.
pub trait HttpClient: Send + Sync {
    /// Starts a session, whose requests share cookies.
    fn session(&self) -> Box<dyn HttpSession>;
}

/// A series of requests that share cookies.
pub trait HttpSession: Send {
    /// Sends one request, with retries, redirects and authentication.
    ///
    /// Blocks for at most the request's timeout; returns soon after `cancel` is set. Addresses that are not public are
    /// refused, also after a redirect, unless the server allows them.
    fn send(&mut self, request: &HttpRequest, cancel: &Cancel) -> Result<HttpResponse, HttpFailure>;
}
