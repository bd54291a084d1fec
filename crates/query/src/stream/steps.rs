//! Items after some steps.

use std::collections::VecDeque;

use datum::Datum;
use reql::stream::{Endless, Items};
use reql::{Env, EvalError, Flow, Transform};

/// `items` after `steps`.
pub(super) fn stepped(items: Box<dyn Items>, steps: Vec<Transform>) -> Box<dyn Items> {
    if steps.is_empty() {
        return items;
    }
    Box::new(Piped { items, steps, ready: VecDeque::new() })
}

/// Items of a source after some steps.
struct Piped {
    items: Box<dyn Items>,
    steps: Vec<Transform>,
    ready: VecDeque<Datum>,
}

impl Items for Piped {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            env.check_cancel()?;
            let Some(item) = self.items.next(env)? else { return Ok(None) };
            let ready = &mut self.ready;
            reql::run(&self.steps, item, env, &mut |item| {
                ready.push_back(item);
                Ok(Flow::Continue)
            })?;
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless()
    }

    fn is_immediate(&self) -> bool {
        self.items.is_immediate() && self.steps.iter().all(Transform::is_brief)
    }

    fn is_exhausted(&self) -> bool {
        self.ready.is_empty() && self.items.is_exhausted()
    }
}
