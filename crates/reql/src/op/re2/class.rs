//! Bracketed classes of RE2's dialect: `[a-z]`, `[^\d[:alpha:]]`.

use super::escape::{Escape, Fault, escape, push_literal};

/// Names of the classes that are written `[:name:]` inside brackets.
const NAMES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Translates the class at the start of `text` and appends it to `out`. Returns its length in `text`.
pub(super) fn translate(text: &str, out: &mut String) -> Result<usize, Fault> {
    out.push('[');
    let mut rest = &text[1..];
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut is_first = true;
    while is_first || !rest.starts_with(']') {
        if rest.is_empty() {
            return Err(unclosed(text));
        }
        is_first = false;
        rest = item(text, rest, out)?;
    }
    out.push(']');
    Ok(text.len() - rest.len() + 1)
}

fn unclosed(class: &str) -> Fault {
    Fault::new("missing ]", class)
}

/// Translates one member of the class. Returns the text after it.
fn item<'t>(class: &'t str, rest: &'t str, out: &mut String) -> Result<&'t str, Fault> {
    if let Some(end) = rest.strip_prefix("[:").and_then(|inside| inside.find(":]")) {
        let length = 2 + end + 2;
        return named(&rest[..length], out).map(|()| &rest[length..]);
    }
    if rest.starts_with('\\')
        && let (Escape::Class(found), length) = escape(rest)?
    {
        out.push_str(&found);
        return Ok(&rest[length..]);
    }
    let (low, after_low) = member(class, rest)?;
    let is_range = after_low.starts_with('-') && !after_low[1..].starts_with(']');
    if !is_range || after_low.len() == 1 {
        push_literal(low, out);
        return Ok(after_low);
    }
    let (high, after) = member(class, &after_low[1..])?;
    if high < low {
        let portion = &rest[..rest.len() - after.len()];
        return Err(Fault::new("invalid character class range", portion));
    }
    push_literal(low, out);
    out.push('-');
    push_literal(high, out);
    Ok(after)
}

/// `[:name:]` or `[:^name:]`.
fn named(text: &str, out: &mut String) -> Result<(), Fault> {
    let name = &text[2..text.len() - 2];
    if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(Fault::new("invalid character class range", text));
    }
    out.push_str(text);
    Ok(())
}

/// One character, escaped or not, and the text after it.
fn member<'t>(class: &'t str, rest: &'t str) -> Result<(char, &'t str), Fault> {
    let Some(first) = rest.chars().next() else { return Err(unclosed(class)) };
    if first != '\\' {
        return Ok((first, &rest[first.len_utf8()..]));
    }
    match escape(rest)? {
        (Escape::Character(c), length) => Ok((c, &rest[length..])),
        // A class cannot be an end point of a range.
        (Escape::Class(_), length) => Err(Fault::new("invalid escape sequence", &rest[..length])),
    }
}
