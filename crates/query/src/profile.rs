//! What a query reports of itself when it is asked to: how long it took.

use datum::{Datum, Text};
use io::Nanos;
use reql::wire::Query;

/// A profile being taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    started: Nanos,
}

impl Profile {
    /// A profile from `now` on, if the query asks for one.
    pub fn of(query: &Query, now: Nanos) -> Option<Profile> {
        query.flag("profile").then_some(Profile { started: now })
    }

    /// The list of tasks a client gets.
    pub fn finish(self, now: Nanos) -> Datum {
        let milliseconds = now.since(self.started).as_secs_f64() * 1000.0;
        let task = [
            ("description", "Evaluating the query.".into()),
            ("duration(ms)", Datum::Number(milliseconds)),
            ("sub_tasks", Datum::empty_array()),
        ];
        let task = task.into_iter().map(|(name, value)| (Text::from_static(name), value));
        vec![Datum::Object(task.collect())].into()
    }
}
