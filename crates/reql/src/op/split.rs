//! Splits a string into pieces: the pure part of `split`.

use std::sync::LazyLock;

use regex::Regex;

use crate::EvalError;

/// How a string is split.
#[derive(Clone, Copy, Debug)]
pub enum Cut<'a> {
    /// At runs of Unicode whitespace, without empty pieces.
    Whitespace,
    /// After every character together with the combining marks that follow it.
    Characters,
    /// At every occurrence of this text, which is not empty.
    Separator(&'a str),
}

/// Calls `take` with every piece of `text`, in order.
///
/// After `cuts_max` splits the rest is the last piece. When splitting at whitespace, that piece loses its leading
/// whitespace but keeps the whitespace after it.
pub fn cut<'t>(
    text: &'t str,
    by: Cut<'_>,
    cuts_max: Option<usize>,
    take: impl FnMut(&'t str) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    match by {
        Cut::Separator(separator) => at_separator(text, separator, cuts_max, take),
        Cut::Whitespace => at_whitespace(text, cuts_max, take),
        Cut::Characters => at_characters(text, cuts_max, take),
    }
}

fn at_separator<'t>(
    text: &'t str,
    separator: &str,
    cuts_max: Option<usize>,
    mut take: impl FnMut(&'t str) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    match (cuts_max, separator.as_bytes()) {
        // Searching for a single byte is the common case and the fastest.
        (None, &[byte]) if byte.is_ascii() => text.split(char::from(byte)).try_for_each(take),
        (None, _) => text.split(separator).try_for_each(take),
        (Some(cuts), _) => text.splitn(cuts + 1, separator).try_for_each(&mut take),
    }
}

fn at_whitespace<'t>(
    text: &'t str,
    cuts_max: Option<usize>,
    mut take: impl FnMut(&'t str) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    let Some(cuts_max) = cuts_max else {
        return text.split_whitespace().try_for_each(take);
    };
    let mut rest = text.trim_start();
    for _ in 0..cuts_max {
        let Some(end) = rest.find(char::is_whitespace) else { break };
        take(&rest[..end])?;
        rest = rest[end..].trim_start();
    }
    if rest.is_empty() { Ok(()) } else { take(rest) }
}

fn at_characters<'t>(
    text: &'t str,
    cuts_max: Option<usize>,
    mut take: impl FnMut(&'t str) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    /// A character and the marks (Unicode category M) that combine with it.
    #[allow(clippy::expect_used, reason = "a constant expression, compiled in every test run")]
    static CHARACTER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?s:.)\p{M}*").expect("invariant: the expression is legal"));
    let mut rest = text;
    let mut cuts_left = cuts_max.unwrap_or(usize::MAX);
    while cuts_left > 0 && !rest.is_empty() {
        let length = match rest.as_bytes() {
            [_, next, ..] if next.is_ascii() && rest.is_char_boundary(1) => 1,
            _ => CHARACTER.find(rest).map_or(rest.len(), |character| character.end()),
        };
        let (character, after) = rest.split_at(length);
        take(character)?;
        rest = after;
        cuts_left -= 1;
    }
    if rest.is_empty() { Ok(()) } else { take(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'t>(text: &'t str, by: Cut<'_>, cuts_max: Option<usize>) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        cut(text, by, cuts_max, |piece| {
            pieces.push(piece);
            Ok(())
        })
        .expect("taking a piece does not fail");
        pieces
    }

    #[test]
    fn whitespace_is_unicode_whitespace_and_leaves_no_empty_pieces() {
        let words = |text, cuts_max| pieces(text, Cut::Whitespace, cuts_max);
        assert_eq!(words("", None), [""; 0]);
        assert_eq!(words("  ", None), [""; 0]);
        assert_eq!(words("  ", Some(5)), [""; 0]);
        assert_eq!(words("  aaaa bbbb  cccc ", None), ["aaaa", "bbbb", "cccc"]);
        assert_eq!(
            words("foo bar\tbaz\nquux\rfred\u{b}barney\u{c}wilma", None),
            ["foo", "bar", "baz", "quux", "fred", "barney", "wilma"]
        );
        let horrors =
            "foo\u{a0}bar\u{2001}baz\u{2060}quux\u{2028}fred\u{2028}barney\u{2029}wilma\u{85}betty\u{200b}";
        let parted = ["foo", "bar", "baz\u{2060}quux", "fred", "barney", "wilma", "betty\u{200b}"];
        assert_eq!(words(horrors, None), parted);
        assert_eq!(words(horrors, Some(20)), parted);
    }

    #[test]
    fn the_rest_after_whitespace_keeps_only_its_trailing_space() {
        let words = |text, cuts_max| pieces(text, Cut::Whitespace, Some(cuts_max));
        assert_eq!(words("  aaaa bbbb  cccc ", 3), ["aaaa", "bbbb", "cccc"]);
        assert_eq!(words("  aaaa bbbb  cccc ", 2), ["aaaa", "bbbb", "cccc "]);
        assert_eq!(words("  aaaa bbbb  cccc ", 1), ["aaaa", "bbbb  cccc "]);
        assert_eq!(words("  aaaa bbbb  cccc ", 0), ["aaaa bbbb  cccc "]);
        assert_eq!(words("a  b  ", 2), ["a", "b"]);
    }

    #[test]
    fn separators_leave_empty_pieces() {
        let cut_at = |text, separator, cuts_max| pieces(text, Cut::Separator(separator), cuts_max);
        assert_eq!(cut_at("", " ", None), [""]);
        assert_eq!(cut_at("", " ", Some(5)), [""]);
        assert_eq!(cut_at("  ", " ", None), ["", "", ""]);
        assert_eq!(cut_at("aaaa bbbb  cccc ", " ", None), ["aaaa", "bbbb", "", "cccc", ""]);
        assert_eq!(cut_at("aaaa bbbb  cccc ", " ", Some(2)), ["aaaa", "bbbb", " cccc "]);
        assert_eq!(cut_at("aaaa bbbb  cccc ", " ", Some(0)), ["aaaa bbbb  cccc "]);
        assert_eq!(cut_at("aaaa bbbb  cccc ", "bb", None), ["aaaa ", "", "  cccc "]);
        assert_eq!(cut_at("aaaa bbbb  cccc ", "b", Some(2)), ["aaaa ", "", "bb  cccc "]);
        assert_eq!(cut_at("aéb", "é", None), ["a", "b"]);
    }

    #[test]
    fn characters_keep_their_combining_marks() {
        let characters = |text, cuts_max| pieces(text, Cut::Characters, cuts_max);
        assert_eq!(characters("", None), [""; 0]);
        assert_eq!(characters("", Some(5)), [""; 0]);
        assert_eq!(characters("f\u{e9}oo", None), ["f", "\u{e9}", "o", "o"]);
        assert_eq!(characters("fe\u{301}oo", None), ["f", "e\u{301}", "o", "o"]);
        assert_eq!(characters("\u{301}a\n", None), ["\u{301}", "a", "\n"]);
        assert_eq!(characters("abc", Some(0)), ["abc"]);
        assert_eq!(characters("aaaa bbbb  cccc ", Some(5)), ["a", "a", "a", "a", " ", "bbbb  cccc "]);
        assert_eq!(characters("ab", Some(2)), ["a", "b"]);
    }
}
