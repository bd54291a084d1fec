//! The options of `changes`.

use std::time::Duration;

use datum::Datum;
use reql::EvalError;

use crate::service::FeedKind;
use crate::value::Args;

#[derive(Clone, Debug)]
pub(crate) struct FeedOptions {
    /// Whether the present rows come first.
    pub include_initial: bool,
    /// Whether the feed says when it reads initial values, and when it has.
    pub include_states: bool,
    /// Whether each element says what kind it is.
    pub include_types: bool,
    /// Whether elements of the first rows of an order have their offsets.
    pub include_offsets: bool,
    /// Whether changes of one row are combined while they wait.
    pub squash: Squash,
    /// How many changes may wait.
    pub queue_max: usize,
    /// Whether elements have the field `resume_token`.
    pub include_token: bool,
    /// The token of the last element that a feed delivered before.
    pub resume_after: Option<datum::Text>,
}

/// Whether changes of one row are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Squash {
    No,
    /// While they wait to be fetched.
    WhileWaiting,
    /// And each waits this long for further ones.
    For(Duration),
}

/// How many changes may wait unless a query says otherwise.
const QUEUE_MAX_DEFAULT: usize = 100_000;
/// The longest that changes are collected.
const SQUASH_MAX: Duration = Duration::from_secs(86_400);

impl FeedOptions {
    /// The options of the term. Fails if one has the wrong type or an illegal value.
    pub fn of(args: &Args<'_>) -> Result<FeedOptions, EvalError> {
        let resume_after = match args.optional_datum("resume_after")? {
            None | Some(Datum::Null) => None,
            Some(Datum::String(token)) => Some(token),
            Some(other) => return Err(EvalError::type_error("STRING", &other).at("resume_after")),
        };
        let options = FeedOptions {
            include_initial: args.flag("include_initial")?,
            include_states: args.flag("include_states")?,
            include_types: args.flag("include_types")?,
            include_offsets: args.flag("include_offsets")?,
            squash: squash(args)?,
            queue_max: queue_max(args)?,
            include_token: args.flag("include_resume_token")?,
            resume_after,
        };
        if options.include_initial && options.resume_after.is_some() {
            return Err(EvalError::logic(
                "A feed that is resumed continues with its own initial values: `include_initial` and `resume_after` \
                 cannot be used together.",
            ));
        }
        Ok(options)
    }

    /// Fails if the options ask for offsets, which a feed of this kind does not have. Source: rdb_protocol/changefeed.cc of
    /// RethinkDB.
    pub fn check(&self, kind: FeedKind) -> Result<(), EvalError> {
        let what = match kind {
            FeedKind::FirstRows => return Ok(()),
            FeedKind::Point => "point",
            _ => "range",
        };
        match self.include_offsets {
            true => Err(EvalError::logic(format!("Cannot include offsets for {what} subs."))),
            false => Ok(()),
        }
    }
}

fn queue_max(args: &Args<'_>) -> Result<usize, EvalError> {
    let Some(count) = args.optional_integer("changefeed_queue_size")? else { return Ok(QUEUE_MAX_DEFAULT) };
    match usize::try_from(count) {
        Ok(count) if count >= 1 => Ok(count),
        _ => Err(EvalError::logic(format!("Illegal changefeed queue size `{count}`.  (Must be >= 1.)"))),
    }
}

fn squash(args: &Args<'_>) -> Result<Squash, EvalError> {
    let expected = "Expected BOOL or NUMBER but found";
    match args.optional_datum("squash")? {
        None | Some(Datum::Bool(false)) => Ok(Squash::No),
        Some(Datum::Bool(true)) => Ok(Squash::WhileWaiting),
        Some(Datum::Number(seconds)) if seconds < 0.0 => {
            Err(EvalError::logic("Expected BOOL or a positive NUMBER but found a negative NUMBER.")
                .at("squash"))
        }
        Some(Datum::Number(seconds)) => {
            let wait = Duration::try_from_secs_f64(seconds).unwrap_or(SQUASH_MAX).min(SQUASH_MAX);
            Ok(if wait.is_zero() { Squash::WhileWaiting } else { Squash::For(wait) })
        }
        Some(other) => Err(EvalError::logic(format!("{expected} {}.", other.kind().name())).at("squash")),
    }
}
