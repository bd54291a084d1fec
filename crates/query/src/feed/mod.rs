//! Changefeeds: `changes` on tables and parts of them.
//!
//! A feed is a position in the history of each group of its table (`cluster::Feeds`). The thread of the feeds passes changed rows
//! to a [`subscriber::FeedSubscriber`], which applies the steps of the feed (`steps::RowSteps`) and queues the results until the client
//! fetches them. [`open`] returns the stream that the query reads: states, initial values, then the changes in the queue.
//!
//! - `followed`: whether and how a sequence can be followed; `plan`: rows of one table, `join_plan`: of two; `entries`: how often each
//!   row is in the sequence; `steps`: the steps that its rows take; `options`: the options of `changes`
//! - `subscriber`: receives the changes; `queue`: changes that wait for the client; `queue_memory`: their share of the
//!   memory; `element`: the objects that the client gets
//! - `reader`: the common part of all streams; `scan`, `indexed`: the rows with which they begin
//! - `part`: the stream, which has a part for each sequence of a union
//! - `items`: a part of rows
//! - `view_items`, `source`: a part of a value that is computed from rows, a `view`; `limit` and `window`: the first rows of an order;
//!   `aggregate` and `total`: aggregates of groups; `distinct`: distinct items; `join`: pairs of rows of two tables
//! - `system`: a part of a system table
//! - `token`: a position as text, from which a feed can be resumed
//! - `position`: how far the client has come

mod aggregate;
mod distinct;
mod element;
mod entries;
mod followed;
mod indexed;
mod items;
mod join;
mod join_plan;
mod limit;
mod options;
mod part;
mod plan;
mod position;
mod queue;
mod queue_memory;
mod reader;
mod scan;
mod source;
mod steps;
mod subscriber;
mod system;
mod token;
mod total;
mod view;
mod view_items;
mod window;

use std::collections::HashSet;

use reql::EvalError;

pub(crate) use followed::Followed;
pub(crate) use options::FeedOptions;

use self::aggregate::AggregateView;
use self::distinct::DistinctView;
use self::items::RowItems;
use self::limit::LimitView;
use self::part::{FeedItems, FeedPart};
use self::plan::{FeedPlan, Limit, ViewPlan};
use self::position::ClientPosition;
use self::reader::FeedReader;
use self::system::SystemItems;
use self::token::TokenScope;
use self::view::View;
use self::view_items::ViewItems;
use crate::context::Cx;
use crate::stream::Pipe;
use crate::table::system_table_id;

/// The positions of a feed that is resumed, in the order of the tables of its parts.
type Resumed = std::vec::IntoIter<ClientPosition>;

/// Begins a feed of these sequences. Fails if the caller may not read a table, if no leader can be reached, or if the options do
/// not fit.
pub(crate) fn open(cx: &Cx, followed: Vec<Followed>, options: FeedOptions) -> Result<Pipe, EvalError> {
    let scope = scope(cx, &followed, &options)?;
    let resumed = options.resume_after.as_deref().map(|token| scope.positions(token)).transpose()?;
    let mut resumed = resumed.unwrap_or_default().into_iter();
    let (mut parts, mut ready) = (Vec::with_capacity(followed.len()), HashSet::new());
    for part in followed {
        if resumed.as_slice().first().is_some_and(|position| position.initial.is_none()) {
            ready.insert(parts.len());
        }
        parts.push(open_part(cx, part, &options, &mut resumed)?);
    }
    Ok(Pipe::of_items(FeedItems::new(cx.shared()?, parts, ready, options, scope)))
}

fn open_part(
    cx: &Cx,
    followed: Followed,
    options: &FeedOptions,
    resumed: &mut Resumed,
) -> Result<Box<dyn FeedPart>, EvalError> {
    match followed {
        Followed::System(plan) => Ok(Box::new(SystemItems::open(cx, plan, options)?)),
        Followed::Rows(plan) => {
            let view = view_of(cx, &plan, options);
            let (reader, starts) = FeedReader::open(cx, *plan, options, resumed.next())?;
            Ok(match view {
                None => Box::new(RowItems::new(reader, starts)),
                Some(view) => Box::new(ViewItems::new(view, vec![(reader, starts)])),
            })
        }
        Followed::Join(plan) => {
            let (left, right, view) = plan.into_view(cx.array_limit);
            let left = FeedReader::open(cx, left, options, resumed.next())?;
            let right = FeedReader::open(cx, right, options, resumed.next())?;
            Ok(Box::new(ViewItems::new(Box::new(view), vec![left, right])))
        }
    }
}

/// The view of a feed that computes a value from rows of one table.
fn view_of(cx: &Cx, plan: &FeedPlan, options: &FeedOptions) -> Option<Box<dyn View>> {
    Some(match plan.view.as_ref()? {
        ViewPlan::FirstRows(Limit { most, is_descending, .. }) => {
            Box::new(LimitView::new(*most, *is_descending, options.include_offsets))
        }
        ViewPlan::Aggregate(pipeline) => Box::new(AggregateView::new(pipeline.clone(), cx.array_limit)),
        ViewPlan::Distinct => Box::new(DistinctView::new(cx.array_limit)),
        ViewPlan::JoinSide => return None,
    })
}

/// The cluster, the tables and the feed to which tokens belong.
fn scope(cx: &Cx, followed: &[Followed], options: &FeedOptions) -> Result<TokenScope, EvalError> {
    let cluster = cx.node().identity().cluster;
    let mut tables = Vec::with_capacity(followed.len());
    let mut bytes = vec![options.include_states.into(), options.include_types.into()];
    bytes.push(options.include_offsets.into());
    let table_of = |plan: &FeedPlan| {
        plan.table.read_mode.check_up_to_date()?;
        Ok::<_, EvalError>(plan.table.handle.config.id.uuid())
    };
    for part in followed {
        match part {
            Followed::Rows(plan) => {
                tables.push(table_of(plan)?);
                plan.add_to_digest(&mut bytes)?;
            }
            Followed::Join(plan) => {
                tables.extend([table_of(&plan.left)?, table_of(&plan.right)?]);
                plan.add_to_digest(&mut bytes)?;
            }
            Followed::System(plan) => tables.push(system_table_id(plan.rows.system.table.name()).uuid()),
        }
    }
    let low = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(b"digest");
    Ok(TokenScope { cluster, tables, digest: u64::from(low) << 32 | u64::from(crc32c::crc32c(&bytes)) })
}
