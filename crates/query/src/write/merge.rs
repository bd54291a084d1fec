//! Sums of write results, as `for_each` needs them.

use datum::{Datum, Object, Text};
use reql::EvalError;

/// `Too many changes, array truncated to <limit>.`
pub(crate) fn truncation_warning(array_limit: usize) -> Datum {
    format!("Too many changes, array truncated to {array_limit}.").into()
}

/// Whether a write with this result has changed rows.
pub(crate) fn has_changed(result: &Object) -> bool {
    let is_some = |name: &&str| matches!(result.get(name), Some(Datum::Number(rows)) if rows > 0.0);
    ["inserted", "replaced", "deleted"].iter().any(is_some)
}

/// The sum of two results: numbers are added, arrays joined up to the array limit, and of other values the first is
/// kept.
pub(crate) fn merge_results(sum: Object, more: &Object, array_limit: usize) -> Result<Object, EvalError> {
    let mut out = sum.to_builder();
    let mut cut = false;
    for (key, right) in more.iter() {
        let merged = match (out.get(&key), right) {
            (None, right) => right,
            (Some(Datum::Number(left)), Datum::Number(right)) => Datum::Number(left + right),
            (Some(Datum::Array(left)), Datum::Array(right)) => {
                let mut items = left.to_vec();
                items.extend(right.into_vec());
                cut |= items.len() > array_limit;
                items.truncate(array_limit);
                items.into()
            }
            (Some(left @ Datum::String(_)), Datum::String(_)) => left.clone(),
            (Some(left), right) => return Err(cannot_merge(left, &right)),
        };
        out.insert(key, merged);
    }
    if cut {
        add_warning(&mut out, truncation_warning(array_limit));
    }
    Ok(out.build())
}

fn add_warning(out: &mut datum::ObjectBuilder, warning: Datum) {
    let mut warnings = match out.remove("warnings") {
        Some(Datum::Array(items)) => items.into_vec(),
        _ => Vec::new(),
    };
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
    out.insert(Text::from_static("warnings"), warnings.into());
}

/// Source: `stats_merge` in datum.cc of RethinkDB 2.4.
fn cannot_merge(left: &Datum, right: &Datum) -> EvalError {
    let shown = |value: &Datum| format!("`{}` (type {})", value.truncated(), value.kind().name());
    EvalError::logic(format!("Cannot merge statistics {} and {}.", shown(left), shown(right)))
}
