//! The placement options of `table_create` and `reconfigure`, and their errors.

use std::collections::BTreeMap;

use cluster::{DesiredShards, PlacementGoal};
use datum::{Datum, Text};
use reql::EvalError;

use crate::value::{Args, check_name};

const SHARDS: &str = "shards";
const REPLICAS: &str = "replicas";
const PRIMARY_TAG: &str = "primary_replica_tag";
const NONVOTING_TAGS: &str = "nonvoting_replica_tags";
/// The name of a tag in messages.
const TAG: &str = "Server tag";
/// The tag of every new server.
const DEFAULT_TAG: &str = "default";

/// Shards, and replicas by server tag.
#[derive(Debug)]
pub(crate) struct Placement(PlacementGoal);

impl Placement {
    /// The options of `table_create`, all optional.
    pub fn of_create(args: &Args<'_>) -> Result<Placement, EvalError> {
        let shards = args.optional_integer(SHARDS)?.map_or(Ok(1), shards_of)?;
        Placement::of(args, shards, args.optional_datum(REPLICAS)?)
    }

    /// The options of `reconfigure`; shards and replicas are required.
    pub fn of_reconfigure(args: &Args<'_>) -> Result<Placement, EvalError> {
        let missing = |name: &str| EvalError::logic(format!("Missing required argument `{name}`."));
        let shards = args.optional_integer(SHARDS)?.ok_or_else(|| missing(SHARDS))?;
        let shards = shards_of(shards)?;
        let replicas = args.optional_datum(REPLICAS)?.ok_or_else(|| missing(REPLICAS))?;
        Placement::of(args, shards, Some(replicas))
    }

    /// Options are checked in RethinkDB's order. Source: `get_replicas_and_primary` in terms/db_table.cc.
    fn of(args: &Args<'_>, shards: usize, replicas: Option<Datum>) -> Result<Placement, EvalError> {
        let nonvoting_tags = args.optional_datum(NONVOTING_TAGS)?;
        let primary_tag = args.optional_datum(PRIMARY_TAG)?;
        let others = Others { has_primary: primary_tag.is_some(), has_nonvoting: nonvoting_tags.is_some() };
        let replicas = replicas.map_or_else(|| Ok(one_per_table(1)), |asked| replicas_of(&asked, others))?;
        let nonvoting_tags = nonvoting_tags.map_or_else(|| Ok(Vec::new()), nonvoting_of)?;
        let primary_tag = primary_tag.map_or_else(|| Ok(Text::from_static(DEFAULT_TAG)), primary_of)?;
        Ok(Placement(PlacementGoal { shards, replicas, primary_tag, nonvoting_tags }))
    }

    /// The shards that the cluster is to place.
    pub fn desired_shards(self) -> DesiredShards {
        DesiredShards::Placed(self.0)
    }
}

/// Whether there are options besides `replicas`.
#[derive(Clone, Copy)]
struct Others {
    has_primary: bool,
    has_nonvoting: bool,
}

fn one_per_table(replicas: usize) -> BTreeMap<Text, usize> {
    BTreeMap::from([(Text::from_static(DEFAULT_TAG), replicas)])
}

fn shards_of(shards: i64) -> Result<usize, EvalError> {
    match usize::try_from(shards) {
        Ok(shards) if shards >= 1 => Ok(shards),
        _ => Err(EvalError::logic("Every table must have at least one shard.").at(SHARDS)),
    }
}

/// The number of replicas on servers of each tag.
fn replicas_of(asked: &Datum, others: Others) -> Result<BTreeMap<Text, usize>, EvalError> {
    let wrong = |why: String| EvalError::logic(why).at(REPLICAS);
    let only_object = |name: &str| wrong(format!("`replicas` must be an OBJECT if `{name}` is specified."));
    match asked {
        Datum::Number(_) if others.has_primary => Err(only_object(PRIMARY_TAG)),
        Datum::Number(_) if others.has_nonvoting => Err(only_object(NONVOTING_TAGS)),
        Datum::Number(count) => Ok(one_per_table(count_of(*count)?)),
        Datum::Object(_) if !others.has_primary => {
            Err(wrong(format!("`{PRIMARY_TAG}` must be specified when `{REPLICAS}` is an OBJECT.")))
        }
        Datum::Object(by_tag) => {
            let replicas = by_tag.iter().map(|(tag, count)| {
                check_name(TAG, &tag).map_err(|error| error.at(REPLICAS))?;
                // The error for another type is about the term, and not about the option.
                let Datum::Number(count) = count else { return Err(EvalError::type_error("NUMBER", &count)) };
                Ok((tag, count_of(count)?))
            });
            replicas.collect()
        }
        other => Err(wrong(expected("OBJECT or NUMBER", other))),
    }
}

fn count_of(count: f64) -> Result<usize, EvalError> {
    let count = reql::args::integer(count).map_err(|error| error.at(REPLICAS))?;
    usize::try_from(count)
        .map_err(|_| EvalError::logic("Can't have a negative number of replicas").at(REPLICAS))
}

/// The tags of servers with replicas that have no vote.
fn nonvoting_of(asked: Datum) -> Result<Vec<Text>, EvalError> {
    let wrong = |error: EvalError| error.at(NONVOTING_TAGS);
    let Datum::Array(tags) = &asked else {
        return Err(wrong(EvalError::logic(expected("ARRAY", &asked))));
    };
    let text = |tag: &Datum| match tag {
        Datum::String(tag) => check_name(TAG, tag).map(|()| tag.clone()).map_err(wrong),
        other => Err(wrong(EvalError::logic(expected("STRING", other)))),
    };
    tags.iter().map(text).collect()
}

/// The tag of servers with primary replicas.
fn primary_of(asked: Datum) -> Result<Text, EvalError> {
    let tag = match asked {
        Datum::String(tag) => check_name(TAG, &tag).map(|()| tag),
        other => Err(EvalError::type_error("STRING", &other)),
    };
    tag.map_err(|error| error.at(PRIMARY_TAG))
}

fn expected(kind: &str, found: &Datum) -> String {
    format!("Expected type {kind} but found {}:\n{}", found.kind().name(), found.pretty())
}
