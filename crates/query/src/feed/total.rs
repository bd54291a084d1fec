//! An aggregate of items, kept up to date as items come and go.

use std::collections::BTreeMap;

use datum::Datum;
use reql::{Env, EvalError, Terminal};
use xsum::{Xsum, XsumSmall};

use super::steps::unless_failed;
use super::window::{Place, Window};

/// The state of an aggregate.
pub(super) struct Total {
    /// The number of items that count.
    count: u64,
    state: State,
}

enum State {
    Count,
    /// The exact sum, so that adding and taking away leaves nothing behind.
    Sum(Box<XsumSmall>),
    /// The smallest or largest items.
    Best(Window),
    /// How often each item is there.
    Set(BTreeMap<Datum, u64>),
}

/// An item, with the place that tells it from equal ones.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub value: Datum,
    /// The row, and which of its items this is.
    pub key: datum::PrimaryKey,
    pub nth: u32,
}

impl Total {
    /// The aggregate of no items; `None` for a terminal that cannot be kept up to date.
    pub fn empty(terminal: &Terminal) -> Option<Total> {
        let state = match terminal {
            Terminal::Count => State::Count,
            Terminal::Sum(_) | Terminal::Avg(_) => State::Sum(Box::new(XsumSmall::new())),
            Terminal::Min(_) => State::Best(Window::new(1, false)),
            Terminal::Max(_) => State::Best(Window::new(1, true)),
            Terminal::Distinct => State::Set(BTreeMap::new()),
            Terminal::Collect | Terminal::Reduce(_) | Terminal::Top { .. } => return None,
        };
        Some(Total { count: 0, state })
    }

    /// Whether no item counts.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an item. An item that the terminal cannot use does not count. Fails for lack of memory.
    pub fn add(&mut self, terminal: &Terminal, item: Item, env: &Env<'_>) -> Result<(), EvalError> {
        let Some(value) = value_of(terminal, &item.value, env)? else { return Ok(()) };
        match (&mut self.state, value) {
            (State::Count, _) => {}
            (State::Sum(sum), Datum::Number(number)) => sum.add(number),
            (State::Sum(_), _) => return Ok(()),
            (State::Best(window), value) => {
                window.insert(Place { value, key: item.key, nth: item.nth }, item.value);
            }
            (State::Set(counts), value) => *counts.entry(value).or_insert(0) += 1,
        }
        self.count += 1;
        Ok(())
    }

    /// Takes away an item that was added before. Fails for lack of memory.
    pub fn remove(&mut self, terminal: &Terminal, item: Item, env: &Env<'_>) -> Result<(), EvalError> {
        let Some(value) = value_of(terminal, &item.value, env)? else { return Ok(()) };
        match (&mut self.state, value) {
            (State::Count, _) => {}
            (State::Sum(sum), Datum::Number(number)) => sum.add(-number),
            (State::Sum(_), _) => return Ok(()),
            (State::Best(window), value) => window.remove(&Place { value, key: item.key, nth: item.nth }),
            (State::Set(counts), value) => take_one(counts, &value),
        }
        self.count = self.count.saturating_sub(1);
        Ok(())
    }

    /// Whether items must be read again before the value is known.
    pub fn needs_more(&self) -> bool {
        matches!(&self.state, State::Best(window) if self.count > 0 && window.needs_more())
    }

    /// The value; `None` for the mean and the extremes of no items. Fails if a sum is too large for a number.
    pub fn value(&mut self, terminal: &Terminal) -> Result<Option<Datum>, EvalError> {
        Ok(Some(match &mut self.state {
            State::Count => Datum::Number(self.count as f64),
            State::Sum(sum) => match (terminal, self.count) {
                (Terminal::Avg(_), 0) => return Ok(None),
                (Terminal::Avg(_), count) => reql::args::finite(sum.sum() / count as f64)?,
                _ => reql::args::finite(sum.sum() + 0.0)?,
            },
            State::Best(window) => {
                window.forget_shift();
                return Ok(window.rows().into_iter().next().map(|(_, item)| item));
            }
            State::Set(counts) => Datum::Array(counts.keys().cloned().collect()),
        }))
    }

    /// How many values the aggregate has.
    pub fn size(&self) -> usize {
        match &self.state {
            State::Count | State::Sum(_) | State::Best(_) => 1,
            State::Set(counts) => counts.len(),
        }
    }
}

/// Counts one of the equal items less.
pub(super) fn take_one(counts: &mut BTreeMap<Datum, u64>, value: &Datum) {
    match counts.get_mut(value) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(value)),
    }
}

/// The value of an item that the terminal uses; `None` if there is none. A function that fails for an item leaves it out.
fn value_of(terminal: &Terminal, item: &Datum, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
    let selector = match terminal {
        Terminal::Sum(selector)
        | Terminal::Avg(selector)
        | Terminal::Min(selector)
        | Terminal::Max(selector) => selector.as_ref(),
        _ => None,
    };
    match selector {
        None => Ok(Some(item.clone())),
        Some(selector) => Ok(unless_failed(selector.present(item, env))?.flatten()),
    }
}

#[cfg(test)]
mod tests {
    use io::sim::SimRandom;
    use reql::{Cancel, SeededRandom};

    use super::*;

    fn env() -> Env<'static> {
        static NEVER: Cancel = Cancel::never();
        static RANDOM: SeededRandom = SeededRandom::new(0);
        Env {
            now: datum::Time::new(0.0, 0),
            array_limit: 100_000,
            cancel: &NEVER,
            random: &RANDOM,
            globals: &[],
            open: None,
        }
    }

    fn item(value: f64, key: u64) -> Item {
        let key = datum::PrimaryKey(datum::Bytes::copy_from_slice(&key.to_be_bytes()));
        Item { value: Datum::Number(value), key, nth: 0 }
    }

    #[test]
    fn a_sum_leaves_nothing_behind() {
        let terminal = Terminal::Sum(None);
        let mut total = Total::empty(&terminal).unwrap();
        for (key, value) in [1e300, 0.1, -3.7e-200, 12345.678].into_iter().enumerate() {
            total.add(&terminal, item(value, key as u64), &env()).unwrap();
        }
        for (key, value) in [1e300, -3.7e-200, 12345.678, 0.1].into_iter().enumerate() {
            total.remove(&terminal, item(value, key as u64), &env()).unwrap();
        }
        assert_eq!(total.value(&terminal).unwrap(), Some(Datum::Number(0.0)));
        assert!(total.is_empty());
    }

    #[test]
    fn aggregates_equal_those_of_all_items_after_each_of_many_changes() {
        let random = SimRandom::new(11);
        let terminals = [
            Terminal::Count,
            Terminal::Sum(None),
            Terminal::Avg(None),
            Terminal::Min(None),
            Terminal::Max(None),
        ];
        for terminal in &terminals {
            let mut total = Total::empty(terminal).unwrap();
            let mut items: BTreeMap<u64, f64> = BTreeMap::new();
            for change in 0..5_000 {
                let key = random.below(50);
                if let Some(old) = items.remove(&key) {
                    total.remove(terminal, item(old, key), &env()).unwrap();
                }
                if random.below(3) > 0 {
                    let value = random.below(40) as f64 / 10.0 - 1.0;
                    items.insert(key, value);
                    total.add(terminal, item(value, key), &env()).unwrap();
                }
                if total.needs_more() {
                    total = Total::empty(terminal).unwrap();
                    for (key, value) in &items {
                        total.add(terminal, item(*value, *key), &env()).unwrap();
                    }
                }
                let mut exact = XsumSmall::new();
                items.values().for_each(|value| exact.add(*value));
                let (count, sum) = (items.len(), exact.sum() + 0.0);
                let best = |of: fn(f64, f64) -> f64| items.values().copied().reduce(of);
                let expected = match terminal {
                    Terminal::Count => Some(count as f64),
                    Terminal::Sum(_) => Some(sum),
                    Terminal::Avg(_) => (count > 0).then(|| sum / count as f64),
                    Terminal::Min(_) => best(f64::min),
                    _ => best(f64::max),
                };
                let expected = expected.map(Datum::Number);
                assert_eq!(
                    total.value(terminal).unwrap(),
                    expected,
                    "change {change} of {}",
                    terminal.name()
                );
            }
        }
    }
}
