//! Changefeeds: follows the histories of groups (`shard::HistoryEntry`) on behalf of subscribers of this node.
//!
//! A subscriber names a table, the rows it is interested in, and a position in each group that has such rows. From there it
//! receives every change, once and in the order of the log, whichever replica it comes from. It is not told when a leader
//! dies, or when replicas come and go: its position is the same in all of them. When a group is sealed, the subscriber
//! continues in the successors, at their beginning.
//!
//! - [`Feeds`] (`owner`): the owner; [`Subscriber`], [`Subscription`]: a feed as its reader sees it; [`Interest`]: its rows
//! - `worker`: the thread that has all the state. It receives messages, reads histories and passes entries on.
//! - `streams`, `stream`: the history of one group from a position on, and its followers
//! - `followers`, `by_value`, `range_tree`: find the followers of a stream to which a changed row is passed
//! - `source`: the replica that a stream reads from
//! - `successors`, `moves`: the groups that continue a sealed one, and how subscriptions get there
//! - `rows`, `past_rows`: rows as they were at the position at which a feed begins, in a local replica and in the cluster
//! - `serve`, `response`: histories for other servers
//! - `history_use`: switches histories on for feeds, and off when no feed has used them for long
//!
//! The only locks are the inbox of the thread, the positions that it publishes and the segments of each subscription, all
//! leaves, and the two of `history_use`.

mod ahead;
mod by_value;
mod counters;
mod followers;
mod history_use;
mod inbox;
mod interest;
mod moves;
mod owner;
mod past_rows;
mod position;
mod range_tree;
mod response;
mod rows;
mod serve;
mod source;
mod stream;
mod streams;
mod subscription;
mod successors;
mod worker;

pub use counters::FeedsStats;
pub use interest::{Interest, RowValues, ValuesOf, WantedValues};
pub use owner::{Feeds, InitialRows};
pub use position::{FeedPosition, FeedStart};
pub use subscription::{FeedEnd, FeedEvent, Subscriber, Subscription};
pub(crate) use worker::FeedsWorker;
