//! Outbound HTTP for `r.http`: requests on their own threads, to public addresses only, with limits of time and size.

mod address;
mod client;
mod cookies;
mod failure;
mod request;
mod resolve;
mod url;

pub use client::OutboundHttp;
