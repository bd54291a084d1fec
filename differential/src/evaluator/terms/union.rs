//! `union`, unordered or merged in an order.

use super::order;
use super::sequence::{all, of_value, settled};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::{Seq, TermValue};
use crate::fault::{Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    let seqs: Out<Vec<Seq>> = (0..args.len()).map(|i| of_value(args.evaluator, args.value(i)?)).collect();
    let seqs = seqs?;
    let interleaves = match args.option_term("interleave") {
        None | Some(serde_json::Value::Bool(true)) => true,
        Some(serde_json::Value::Bool(false)) => false,
        Some(_) => return ordered_union(args, seqs),
    };
    let eager = seqs.iter().all(|seq| seq.eager);
    let infinite = seqs.iter().any(|seq| seq.infinite);
    let mut items: Vec<Out<Val>> = seqs.into_iter().flat_map(|seq| seq.items).collect();
    if interleaves && !eager {
        items = args.evaluator.shuffled(items);
    }
    settled(args.evaluator, Seq { infinite, ..Seq::stream(items) }, eager)
}

/// `union` of sorted sequences: repeatedly the least of the first items.
fn ordered_union(args: &Args<'_>, seqs: Vec<Seq>) -> Out<TermValue> {
    let Some(term) = args.option_term("interleave") else { return Err(Fault::unspecified("no order")) };
    let terms: Vec<&serde_json::Value> = match term.as_array().map(Vec::as_slice) {
        Some([id, serde_json::Value::Array(terms), ..]) if *id == 2 => terms.iter().collect(),
        _ => vec![term],
    };
    let orders: Vec<order::Order> =
        terms.into_iter().map(|term| order::of_term(args, term)).collect::<Out<_>>()?;
    let eager = seqs.iter().all(|seq| seq.eager);
    let mut keyed = Vec::new();
    for (from, seq) in seqs.into_iter().enumerate() {
        let mut before: Option<Vec<Option<Val>>> = None;
        for item in all(seq)? {
            let keys = order::keys(args, &orders, &item)?;
            if before.is_some_and(|before| order::compare(&orders, &before, &keys).is_gt()) {
                return Err(Fault::unspecified("a sequence that is not sorted"));
            }
            before = Some(keys.clone());
            keyed.push((keys, from, item));
        }
    }
    // No rule determines the order of equal items of several sequences.
    keyed.sort_by(|(a, at, _), (b, other, _)| order::compare(&orders, a, b).then(at.cmp(other)));
    let unclear = keyed
        .windows(2)
        .any(|pair| pair[0].1 != pair[1].1 && order::compare(&orders, &pair[0].0, &pair[1].0).is_eq());
    if unclear {
        return Err(Fault::unspecified("equal items of several sequences"));
    }
    let items = keyed.into_iter().map(|(.., item)| Ok(item)).collect();
    settled(args.evaluator, Seq::stream(items), eager)
}
