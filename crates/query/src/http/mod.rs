//! HTTP requests of queries: what is asked, what came back, and how pages follow each other.
//!
//! The exchange itself is somebody else's: [`Web`] is implemented where sockets are.

mod body;
mod exchange;
mod link;
mod options;
mod pages;
mod params;
mod request;

pub use request::{Auth, HttpFailure, HttpRequest, HttpResponse, Method, Web, WebSession};

pub(crate) use exchange::Exchange;
pub(crate) use options::{HttpOptions, ResultFormat};
pub(crate) use pages::{Page, Pages};
pub(crate) use params::{check_params, encoded, url_params};
