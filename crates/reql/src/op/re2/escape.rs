//! Backslash escapes of RE2's dialect, and the errors in an expression.

use std::fmt::Write as _;

use super::names;

/// Why RE2 refuses an expression.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// RE2's message for the kind of error.
    pub what: &'static str,
    /// The invalid part of the expression; may be empty.
    pub portion: String,
}

impl Fault {
    /// An error in `portion`.
    pub(super) fn new(what: &'static str, portion: &str) -> Self {
        Fault { what, portion: portion.to_owned() }
    }

    /// The complete message.
    #[must_use]
    pub fn text(&self) -> String {
        if self.portion.is_empty() {
            return self.what.to_owned();
        }
        format!("{}: {}", self.what, self.portion)
    }
}

/// The meaning of an escape.
pub(super) enum Escape {
    Character(char),
    /// A class, written for the `regex` crate; legal inside brackets too.
    Class(String),
}

/// The escape at the start of `text`, which begins with a backslash, and its length in bytes.
pub(super) fn escape(text: &str) -> Result<(Escape, usize), Fault> {
    let Some(kind) = text[1..].chars().next() else {
        return Err(Fault::new(r"trailing \", ""));
    };
    let class = match kind {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\f\r ]",
        'S' => r"[^\t\n\f\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        'p' | 'P' => return unicode_class(text),
        _ => return character(text, kind).map(|(c, length)| (Escape::Character(c), length)),
    };
    Ok((Escape::Class(class.to_owned()), 2))
}

/// Writes one character so that it matches itself, inside or outside brackets.
pub(super) fn push_literal(c: char, out: &mut String) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        let _ = write!(out, "\\x{{{:X}}}", u32::from(c));
    }
}

fn character(text: &str, kind: char) -> Result<(char, usize), Fault> {
    let simple = match kind {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'a' => '\u{7}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        'x' => return hexadecimal(text),
        '0'..='7' => return octal(text, kind),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return Err(bad_escape(&text[..1 + kind.len_utf8()])),
    };
    Ok((simple, 2))
}

fn bad_escape(portion: &str) -> Fault {
    Fault::new("invalid escape sequence", portion)
}

/// Up to three octal digits. A single digit other than zero would be a backreference, which is not possible in
/// linear time.
fn octal(text: &str, first: char) -> Result<(char, usize), Fault> {
    let digits = text[1..].bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
    if first != '0' && digits == 1 {
        return Err(bad_escape(&text[..2]));
    }
    let code = u32::from_str_radix(&text[1..=digits], 8).unwrap_or(0);
    Ok((char::from_u32(code).unwrap_or_default(), 1 + digits))
}

/// `\xhh` or `\x{h…}`. An error shows the text up to the offending character.
fn hexadecimal(text: &str) -> Result<(char, usize), Fault> {
    if let Some(inside) = text[2..].strip_prefix('{') {
        return in_braces(text, inside);
    }
    let length = 2 + text[2..].chars().take(2).map(char::len_utf8).sum::<usize>();
    let digits = &text[2..length];
    let plain = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let code = if plain { u32::from_str_radix(digits, 16).ok() } else { None };
    match code.and_then(char::from_u32) {
        Some(c) => Ok((c, length)),
        None => Err(bad_escape(&text[..length])),
    }
}

/// A character code as hexadecimal digits and a closing brace; `inside` is the end of `text`.
fn in_braces(text: &str, inside: &str) -> Result<(char, usize), Fault> {
    if inside.is_empty() {
        return Err(Fault::new("invalid UTF-8", ""));
    }
    let mut code = 0;
    for (at, digit) in inside.char_indices() {
        let end = text.len() - inside.len() + at + digit.len_utf8();
        match digit.to_digit(16) {
            Some(value) => code = code * 16 + value,
            None if digit == '}' && at > 0 => {
                return char::from_u32(code).map(|c| (c, end)).ok_or_else(|| bad_escape(&text[..end]));
            }
            None => return Err(bad_escape(&text[..end])),
        }
        if code > u32::from(char::MAX) {
            return Err(bad_escape(&text[..end]));
        }
    }
    Err(bad_escape(text))
}

/// `\pN`, `\p{Greek}`, `\p{^Greek}`, and with `P` for the complement.
fn unicode_class(text: &str) -> Result<(Escape, usize), Fault> {
    let bad = |portion| Err(Fault::new("invalid character class range", portion));
    let (name, length) = match text[2..].chars().next() {
        None => return bad(text),
        Some('{') => match text.find('}') {
            Some(end) => (&text[3..end], end + 1),
            None => return bad(text),
        },
        Some(letter) => (&text[2..2 + letter.len_utf8()], 2 + letter.len_utf8()),
    };
    let (name, inverted) = match name.strip_prefix('^') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let negated = text.starts_with(r"\P") != inverted;
    match names::class(name, negated) {
        Some(class) => Ok((Escape::Class(class), length)),
        None => bad(&text[..length]),
    }
}
