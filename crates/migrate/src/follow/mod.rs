//! Feeds of the source's tables, and the changes that they bring, on two threads for each table.

mod apply;
mod budget;
mod elements;
mod feed;
mod threads;

pub use threads::{Followers, lag, last_change};
