//! `split`, `upcase`, `downcase`, and the parts of `count` and `slice` that concern strings.

use datum::{Array, Datum, Text};

use super::split::{Cut, cut};
use crate::EvalError;
use crate::args::Args;

/// `split`: the pieces of a string between separators or between runs of whitespace, or its characters.
pub fn split(args: &Args<'_>) -> Result<Datum, EvalError> {
    let text = args.string(0)?;
    let separator = match args.get(1) {
        None => None,
        Some(_) => match args.datum(1)? {
            Datum::Null => None,
            _ => Some(args.plain_string(1)?),
        },
    };
    let by = match separator.map(|separator| separator.as_ref()) {
        None => Cut::Whitespace,
        Some("") => Cut::Characters,
        Some(separator) => Cut::Separator(separator),
    };
    let mut pieces = Vec::with_capacity(8);
    let mut room = args.env.array_limit;
    cut(text, by, pieces_max(args)?, |piece| {
        room = room.checked_sub(1).ok_or_else(|| EvalError::array_limit(args.env.array_limit))?;
        pieces.push(Datum::String(text.slice_ref(piece)));
        Ok(())
    })?;
    Ok(Datum::Array(Array::from(pieces)))
}

/// The maximum number of splits; `None` if unlimited.
fn pieces_max(args: &Args<'_>) -> Result<Option<usize>, EvalError> {
    if args.len() < 3 {
        return Ok(None);
    }
    let count = args.integer(2)?;
    let last = args.env.array_limit.saturating_sub(1);
    match usize::try_from(count) {
        Ok(count) if count <= last => Ok(Some(count)),
        Err(_) if count == -1 => Ok(None),
        _ => {
            let message = format!("Error: `split` size argument must be in range [-1, {last}].");
            Err(EvalError::logic(message))
        }
    }
}

/// `upcase`: the string with `a`–`z` as capitals; other letters stay.
pub fn upcase(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::from(args.string(0)?.to_ascii_uppercase()))
}

/// `downcase`: the string with `A`–`Z` as small letters; other letters stay.
pub fn downcase(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::from(args.string(0)?.to_ascii_lowercase()))
}

/// How many code points a string has: its `count`.
#[must_use]
pub fn code_points(text: &str) -> usize {
    text.chars().count()
}

/// The code points `start..end` of a string: its `slice`. Both are at most its `count`.
#[must_use]
pub fn slice_code_points(text: &Text, start: usize, end: usize) -> Text {
    if text.is_ascii() {
        let end = end.min(text.len());
        return text.slice_ref(&text[start.min(end)..end]);
    }
    let mut offsets = text.char_indices().map(|(offset, _)| offset);
    let from = offsets.nth(start).unwrap_or(text.len());
    let until = match end.checked_sub(start) {
        None | Some(0) => from,
        Some(count) => offsets.nth(count - 1).unwrap_or(text.len()),
    };
    text.slice_ref(&text[from..until])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_count_code_points() {
        let text = Text::from("こんにちは");
        assert_eq!(slice_code_points(&text, 1, 5), "んにちは");
        assert_eq!(slice_code_points(&text, 1, 2), "ん");
        assert_eq!(slice_code_points(&text, 2, 2), "");
        assert_eq!(slice_code_points(&text, 5, 5), "");
        assert_eq!(slice_code_points(&text, 4, 9), "は");
        assert_eq!(slice_code_points(&text, 4, 1), "");
        assert_eq!(slice_code_points(&Text::from("hello"), 1, 3), "el");
        assert_eq!(slice_code_points(&Text::from("hello"), 4, 1), "");
        assert_eq!(code_points("f\u{e9}oo"), 4);
    }
}
