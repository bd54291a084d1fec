//! The way out into the web for `r.http`: requests on threads of their own, to public addresses
//! only, within limits of time and size.

mod address;
mod client;
mod cookies;
mod failure;
mod request;
mod resolve;
mod url;

pub use client::HttpClient;
