//! HTTP requests of queries: requests, responses, and paging.
//!
//! The caller of this crate sends them: it implements [`HttpClient`].

mod body;
mod exchange;
mod link;
mod options;
mod pages;
mod params;
mod request;

pub use request::{Auth, HttpClient, HttpFailure, HttpRequest, HttpResponse, HttpSession, Method};

pub(crate) use exchange::Exchange;
pub(crate) use options::{HttpOptions, ResultFormat};
pub(crate) use pages::{Page, Pages};
pub(crate) use params::{check_params, encoded, url_params};
