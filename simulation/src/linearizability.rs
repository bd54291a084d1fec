//! Whether the history of one document is linearizable: a search for an order of its operations in which each takes effect
//! at one moment between its request and its result.
//!
//! After Wing and Gong ("Testing and verifying concurrent objects", 1993), with Lowe's cache of visited states ("Testing
//! for linearizability", 2017). Every value is written once, which bounds operations with an unknown result: if no read
//! returned the value, the write may be left out, and otherwise it took effect before the first such read returned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::history::{Kind, Mode, Outcome, Record};

/// A search that takes more steps than this ends as a failure.
const STEPS_MAX: u64 = 3_000_000;

struct Step {
    number: u64,
    asked: u64,
    answered: u64,
    // The value that it needs, if any, and the value that it sets.
    before: Option<u64>,
    after: Option<u64>,
}

/// Checks the history of one document; the value 0 stands for no document.
pub fn check(records: &[&Record]) -> Result<(), String> {
    let refused: BTreeSet<u64> = records
        .iter()
        .filter(|record| matches!(record.answered, Some((_, Outcome::Refused(_)))))
        .map(|record| record.op.number)
        .collect();
    check_values(records)?;
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for record in records {
        let Some((when, Outcome::Done(Some(value)))) = &record.answered else { continue };
        let first = seen.entry(*value).or_insert(*when);
        *first = (*first).min(*when);
        if refused.contains(value) {
            return Err(format!("operation {} saw {value}, which was refused", record.op.number));
        }
    }
    let mut steps: Vec<Step> = records.iter().filter_map(|record| step(record, &seen)).collect();
    steps.sort_by_key(|step| step.asked);
    search(&steps)
}

/// Checks that no read from a leader returned a value that was overwritten more than `most` before the read: a replaced
/// leader must step down within that time.
pub fn check_age(records: &[&Record], most: Duration) -> Result<(), String> {
    let done = |record: &Record| matches!(record.answered, Some((_, Outcome::Done(_))));
    let writes = || records.iter().filter(|r| matches!(r.op.kind, Kind::Put | Kind::Swap) && done(r));
    for read in records.iter().filter(|record| record.op.kind == Kind::Read(Mode::Single)) {
        let Some((_, Outcome::Done(Some(value)))) = read.answered else { continue };
        // The latest possible time of its write, if known.
        let written = match value {
            0 => Some(0),
            value => {
                writes().find(|write| write.op.number == value).and_then(|w| Some(w.answered.as_ref()?.0))
            }
        };
        let Some(written) = written else { continue };
        let is_later =
            |write: &&&Record| write.asked > written && write.answered_at.after(most) < read.asked_at;
        if let Some(later) = writes().find(is_later) {
            let (read, later) = (read.op.number, later.op.number);
            return Err(format!(
                "read {read} saw {value}, which {later} had overwritten for more than {most:?}"
            ));
        }
    }
    Ok(())
}

/// Checks that no read returned a value that was never written: the only promise if writes may be lost.
pub fn check_values(records: &[&Record]) -> Result<(), String> {
    let writes = records.iter().filter(|record| matches!(record.op.kind, Kind::Put | Kind::Swap));
    let written: BTreeSet<u64> = writes.map(|record| record.op.number).collect();
    for record in records {
        if let Some((_, Outcome::Done(Some(value)))) = &record.answered
            && *value != 0
            && !written.contains(value)
        {
            return Err(format!("operation {} saw {value}, which was never written", record.op.number));
        }
    }
    Ok(())
}

fn step(record: &Record, seen: &BTreeMap<u64, u64>) -> Option<Step> {
    let (number, asked) = (record.op.number, record.asked);
    let known = match &record.answered {
        Some((when, Outcome::Done(value))) => Some((*when, *value)),
        Some((_, Outcome::Refused(_))) => return None,
        Some((_, Outcome::Unknown(_))) | None => None,
    };
    let (answered, before) = match (known, record.op.kind) {
        (Some((_, _)), Kind::Read(Mode::Single | Mode::Outdated)) | (None, Kind::Read(_)) => return None,
        (Some((when, value)), Kind::Read(Mode::Majority) | Kind::Swap) => (when, value),
        (Some((when, _)), _) => (when, None),
        // If a read returned its value, it took effect by then; otherwise it may be left out.
        (None, _) => (*seen.get(&number)?, None),
    };
    let after = matches!(record.op.kind, Kind::Put | Kind::Swap).then_some(number);
    Some(Step { number, asked, answered, before, after })
}

fn search(steps: &[Step]) -> Result<(), String> {
    let mut done = vec![false; steps.len()];
    let mut attempt: BTreeSet<(Vec<bool>, u64)> = BTreeSet::new();
    // The operations done, and the value before them.
    let mut path: Vec<(usize, u64)> = Vec::new();
    let (mut value, mut from, mut count, mut best) = (0, 0, 0u64, 0);
    while path.len() < steps.len() {
        count += 1;
        if count > STEPS_MAX {
            return Err("the search for an order of operations gave up".to_owned());
        }
        // An operation cannot come after one whose request followed its result.
        let limit = steps.iter().zip(&done).filter(|(_, done)| !**done).map(|(s, _)| s.answered).min();
        let limit = limit.unwrap_or(u64::MAX);
        let fits = |at: &usize| {
            let step = &steps[*at];
            !done[*at] && step.asked < limit && step.before.is_none_or(|before| before == value)
        };
        let next = (from..steps.len()).find(fits);
        if let Some(at) = next {
            done[at] = true;
            let after = steps[at].after.unwrap_or(value);
            if attempt.insert((done.clone(), after)) {
                path.push((at, value));
                best = best.max(path.len());
                (value, from) = (after, 0);
            } else {
                done[at] = false;
                from = at + 1;
            }
            continue;
        }
        let Some((at, before)) = path.pop() else {
            let numbers: Vec<u64> = steps.iter().map(|step| step.number).collect();
            return Err(format!("no order of operations {numbers:?} explains the results, {best} at most"));
        };
        done[at] = false;
        (value, from) = (before, at + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Document, History};

    fn document() -> Document {
        Document { table: "t".to_owned(), number: 1 }
    }

    fn verdict(history: &History) -> Result<(), String> {
        history.by_document().values().try_for_each(|records| check(records))
    }

    fn ask(history: &mut History, kind: Kind) -> u64 {
        history.ask(document(), kind).number
    }

    #[test]
    fn a_read_after_a_write_sees_it() {
        let mut history = History::default();
        let put = ask(&mut history, Kind::Put);
        history.answer(put, Outcome::Done(None));
        let read = ask(&mut history, Kind::Read(Mode::Majority));
        history.answer(read, Outcome::Done(Some(put)));
        verdict(&history).unwrap();
        let late = ask(&mut history, Kind::Read(Mode::Majority));
        history.answer(late, Outcome::Done(Some(0)));
        verdict(&history).unwrap_err();
    }

    #[test]
    fn a_write_of_unknown_fate_may_come_late_but_not_twice() {
        let mut history = History::default();
        let lost = ask(&mut history, Kind::Put);
        let kept = ask(&mut history, Kind::Put);
        history.answer(kept, Outcome::Done(None));
        history.answer(lost, Outcome::Unknown(String::new()));
        for value in [kept, lost] {
            let read = ask(&mut history, Kind::Read(Mode::Majority));
            history.answer(read, Outcome::Done(Some(value)));
        }
        verdict(&history).unwrap();
        let read = ask(&mut history, Kind::Read(Mode::Majority));
        history.answer(read, Outcome::Done(Some(kept)));
        verdict(&history).unwrap_err();
    }

    #[test]
    fn two_swaps_cannot_both_follow_the_same_value() {
        let mut history = History::default();
        for _ in 0..2 {
            let swap = ask(&mut history, Kind::Swap);
            history.answer(swap, Outcome::Done(Some(0)));
        }
        verdict(&history).unwrap_err();
    }

    #[test]
    fn a_leader_that_was_replaced_long_ago_is_noticed() {
        for (seconds, is_old) in [(9, false), (11, true)] {
            let mut history = History::default();
            let puts = [(); 2].map(|()| {
                let put = ask(&mut history, Kind::Put);
                history.answer(put, Outcome::Done(None));
                put
            });
            history.now = history.now.after(Duration::from_secs(seconds));
            for value in puts {
                let read = ask(&mut history, Kind::Read(Mode::Single));
                history.answer(read, Outcome::Done(Some(value)));
            }
            let documents = history.by_document();
            let ages = documents.values().map(|records| check_age(records, Duration::from_secs(10)));
            assert_eq!(ages.collect::<Result<Vec<()>, _>>().is_err(), is_old);
        }
    }

    #[test]
    fn a_refused_value_is_never_seen_in_any_mode() {
        let mut history = History::default();
        let put = ask(&mut history, Kind::Put);
        history.answer(put, Outcome::Refused(String::new()));
        let read = ask(&mut history, Kind::Read(Mode::Outdated));
        history.answer(read, Outcome::Done(Some(put)));
        assert!(verdict(&history).unwrap_err().contains("refused"));
    }
}
