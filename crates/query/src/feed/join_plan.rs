//! The two sequences of a feed of `eq_join`, and how they are joined.

use reql::{EvalError, Selector};
use shard::IndexDef;

use super::join::{JoinView, RightKey};
use super::plan::{FeedPlan, ViewPlan};
use super::steps::{RowSteps, add_selector, check_selector};
use crate::context::Cx;
use crate::service::FeedKind;
use crate::table::{Index, TableRef};
use crate::value::JoinOrigin;

/// A feed of `eq_join`.
pub(crate) struct JoinPlan {
    pub left: FeedPlan,
    pub right: FeedPlan,
    by: Selector,
    key: RightKey,
    /// The steps after the join.
    steps: RowSteps,
}

impl JoinPlan {
    /// Fails if one of the sides cannot be followed, or a function cannot be evaluated again.
    pub fn of(cx: &Cx, join: JoinOrigin) -> Result<JoinPlan, EvalError> {
        let JoinOrigin { left, by, right, index, steps } = join;
        check_selector(&by)?;
        let what = left.description();
        let refused = |what: &str| {
            EvalError::logic(format!(
                "Cannot call `changes` after `eq_join` with {what}: a join is kept up to date only for rows of two tables."
            ))
        };
        let left = FeedPlan::of_origin(cx, *left, RowSteps::of_many)?.ok_or_else(|| refused(what))?;
        let found = right.index(cx, &index)?;
        let TableRef::Stored(table) = right else { return Err(refused("a system table")) };
        let (key, relied_on) = match found {
            Index::Primary => (RightKey::Primary(index), None),
            Index::Secondary(config) => {
                let def = IndexDef::new(config.id, config.kind, &config.function);
                (RightKey::Secondary(def), Some(config))
            }
        };
        Ok(JoinPlan {
            left: left.with_view(FeedKind::Join, ViewPlan::JoinSide),
            right: FeedPlan::of_table(table, relied_on)?,
            by,
            key,
            steps: RowSteps::of_one(steps)?,
        })
    }

    /// Adds bytes that tell this feed from others.
    pub fn add_to_digest(&self, bytes: &mut Vec<u8>) -> Result<(), EvalError> {
        self.left.add_to_digest(bytes)?;
        self.right.add_to_digest(bytes)?;
        add_selector(bytes, &self.by)?;
        if let Some(index) = &self.right.index {
            bytes.extend(index.id.0.to_le_bytes());
        }
        self.steps.add_to_digest(bytes)
    }

    /// The sides, and the view that joins them.
    pub(super) fn into_view(self, size_max: usize) -> (FeedPlan, FeedPlan, JoinView) {
        (self.left, self.right, JoinView::new(self.by, self.key, self.steps, size_max))
    }
}
