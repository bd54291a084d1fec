//! The way out into the web for `r.http`: requests on threads of their own, to public addresses
//! only, within limits of time and size.

mod address;
mod client;
mod failure;
mod jar;
mod location;
mod resolve;
mod visit;

pub use client::WebClient;
