//! Changefeeds: `changes` on tables and parts of them.
//!
//! A feed is a position in the history of each group of its table (`cluster::Feeds`). The thread of the feeds passes changed rows
//! to [`FeedQueue`], which applies the steps of the feed (`plan::RowSteps`) and keeps the result until the client
//! fetches it. [`FeedItems`] is the stream that the query reads: states, initial values, then the changes in the queue.
//!
//! - `plan`: which rows a sequence has, so that it can be followed; `options`: the options of `changes`
//! - `queue`: changes that wait for the client; `element`: the objects that the client gets
//! - `items`: the stream
//! - `token`: a position as text, from which a feed can be resumed
//! - `position`: how far the client has come

mod element;
mod items;
mod options;
mod plan;
mod position;
mod queue;
mod token;

pub(crate) use items::FeedItems;
pub(crate) use options::FeedOptions;
pub(crate) use plan::FeedPlan;
