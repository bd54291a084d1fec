//! Where `table_create` and `reconfigure` put the shards and replicas of a table, and what is
//! wrong with what they were asked for.

use std::collections::BTreeMap;

use cluster::{ShardsWanted, Wanted};
use datum::{Datum, Text};
use reql::EvalError;

use crate::args::Args;

/// The tag every new server has.
const DEFAULT_TAG: &str = "default";

/// Shards, and replicas by server tag.
#[derive(Debug)]
pub(crate) struct Placement(Wanted);

impl Placement {
    /// What `table_create` asks for; everything has a default.
    pub fn of_create(args: &Args<'_>) -> Result<Placement, EvalError> {
        let shards = args.optional_integer("shards")?;
        Placement::of(args, shards.unwrap_or(1), args.optional_datum("replicas")?)
    }

    /// What `reconfigure` asks for; shards and replicas must be given.
    pub fn of_reconfigure(args: &Args<'_>) -> Result<Placement, EvalError> {
        let missing = |name: &str| EvalError::logic(format!("Missing required argument `{name}`."));
        let shards = args.optional_integer("shards")?.ok_or_else(|| missing("shards"))?;
        let replicas = args.optional_datum("replicas")?.ok_or_else(|| missing("replicas"))?;
        Placement::of(args, shards, Some(replicas))
    }

    fn of(args: &Args<'_>, shards: i64, replicas: Option<Datum>) -> Result<Placement, EvalError> {
        let shards = match usize::try_from(shards) {
            Ok(shards) if shards >= 1 => shards,
            _ => return Err(EvalError::logic("Every table must have at least one shard.")),
        };
        let primary_tag = args.optional_string("primary_replica_tag")?;
        let nonvoting_tags = tags(args)?;
        let (replicas, primary_tag) = match replicas {
            None => (one_per_table(1), primary_tag.unwrap_or(Text::from_static(DEFAULT_TAG))),
            Some(Datum::Number(n)) => {
                let only_object = |name: &str| {
                    EvalError::logic(format!("`replicas` must be an OBJECT if `{name}` is specified."))
                };
                if primary_tag.is_some() {
                    return Err(only_object("primary_replica_tag"));
                }
                if nonvoting_tags.is_some() {
                    return Err(only_object("nonvoting_replica_tags"));
                }
                (one_per_table(count(&Datum::Number(n))?), Text::from_static(DEFAULT_TAG))
            }
            Some(Datum::Object(by_tag)) => {
                let primary_tag = primary_tag.ok_or_else(|| {
                    EvalError::logic("`primary_replica_tag` must be specified when `replicas` is an OBJECT.")
                })?;
                let replicas = by_tag.iter().map(|(tag, n)| Ok((tag, count(&n)?)));
                (replicas.collect::<Result<_, EvalError>>()?, primary_tag)
            }
            Some(other) => {
                let (kind, shown) = (other.kind().name(), other.pretty());
                let why = format!("Expected type OBJECT or NUMBER but found {kind}:\n{shown}");
                return Err(EvalError::typed(&other, why));
            }
        };
        let nonvoting_tags = nonvoting_tags.unwrap_or_default();
        Ok(Placement(Wanted { shards, replicas, primary_tag, nonvoting_tags }))
    }

    /// What the cluster is asked for.
    pub fn wanted(self) -> ShardsWanted {
        ShardsWanted::Placed(self.0)
    }
}

fn one_per_table(replicas: usize) -> BTreeMap<Text, usize> {
    BTreeMap::from([(Text::from_static(DEFAULT_TAG), replicas)])
}

fn count(value: &Datum) -> Result<usize, EvalError> {
    let Datum::Number(n) = value else {
        return Err(EvalError::type_error("NUMBER", value));
    };
    usize::try_from(reql::args::integer(*n)?)
        .map_err(|_| EvalError::logic("Can't have a negative number of replicas"))
}

fn tags(args: &Args<'_>) -> Result<Option<Vec<Text>>, EvalError> {
    match args.optional_datum("nonvoting_replica_tags")? {
        None => Ok(None),
        Some(Datum::Array(tags)) => {
            let text = |tag: &Datum| match tag {
                Datum::String(text) => Ok(text.clone()),
                other => Err(EvalError::type_error("STRING", other)),
            };
            tags.iter().map(text).collect::<Result<Vec<_>, _>>().map(Some)
        }
        Some(other) => Err(EvalError::type_error("ARRAY", &other)),
    }
}
