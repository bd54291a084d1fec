//! What a query asks of the web, and what it gets.

use std::time::Duration;

use reql::Cancel;

/// How a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl Method {
    /// Every method.
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

/// A name and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Sent with the first request.
    Basic {
        /// Who.
        user: String,
        /// With which password.
        pass: String,
    },
    /// Sent as the answer to the server's challenge.
    Digest {
        /// Who.
        user: String,
        /// With which password.
        pass: String,
    },
}

/// One request, with everything that may be done to get its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// How.
    pub method: Method,
    /// Where, with the parameters; without a scheme it means `http`.
    pub url: String,
    /// Header lines of the query's own, name and value.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Vec<u8>,
    /// Who asks.
    pub auth: Option<Auth>,
    /// How often at most a failure that may pass is tried again; 0 forbids even the first time.
    pub attempts: u64,
    /// Redirections followed at most.
    pub redirects: u32,
    /// How long all of it may take.
    pub timeout: Duration,
    /// Whether the server's certificate must be good.
    pub verify: bool,
    /// Most bytes of the answer's body, unpacked.
    pub body_bytes_max: u64,
}

/// The last answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its status code.
    pub status: u16,
    /// Its headers in their order, names in small letters.
    pub headers: Vec<(String, String)>,
    /// Its body, unpacked.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpFailure {
    /// It took longer than it may.
    TimedOut,
    /// The query was told to stop.
    Cancelled,
    /// Anything else, as a message says it.
    Failed(String),
}

/// The way out into the web.
pub trait Web: Send + Sync {
    /// Begins a series of requests that share cookies.
    fn session(&self) -> Box<dyn WebSession>;
}

/// A series of requests that share cookies.
pub trait WebSession: Send {
    /// Carries out one request: tries again, follows redirections, answers challenges.
    ///
    /// Blocks for at most the request's timeout; returns soon after `cancel` is set. Addresses
    /// that are not public are refused, also behind a redirection, unless the server allows them.
    fn send(&mut self, request: &HttpRequest, cancel: &Cancel) -> Result<HttpResponse, HttpFailure>;
}
