//! Backslash escapes of RE2's dialect, and the faults every part of an expression can have.

use std::fmt::Write as _;

/// Why RE2 refuses an expression.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// RE2's words for the kind of fault.
    pub what: &'static str,
    /// The part of the expression at fault; may be empty.
    pub portion: String,
}

impl Fault {
    /// A fault in `portion`.
    pub(super) fn new(what: &'static str, portion: &str) -> Self {
        Fault { what, portion: portion.to_owned() }
    }

    /// The whole sentence.
    #[must_use]
    pub fn text(&self) -> String {
        if self.portion.is_empty() {
            return self.what.to_owned();
        }
        format!("{}: {}", self.what, self.portion)
    }
}

/// What an escape stands for.
pub(super) enum Escape {
    /// One character.
    Character(char),
    /// A class, spelled for the `regex` crate; legal inside brackets too.
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

/// Writes one character so that it stands for itself, in brackets or outside.
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
        c if c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_' => c,
        _ => return Err(bad_escape(&text[..1 + kind.len_utf8()])),
    };
    Ok((simple, 2))
}

fn bad_escape(portion: &str) -> Fault {
    Fault::new("invalid escape sequence", portion)
}

/// Up to three octal digits. One digit that is not zero would refer back to a group, which
/// linear time does not allow.
fn octal(text: &str, first: char) -> Result<(char, usize), Fault> {
    let digits = text[1..].bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
    if first != '0' && digits == 1 {
        return Err(bad_escape(&text[..2]));
    }
    let code = u32::from_str_radix(&text[1..=digits], 8).unwrap_or(0);
    Ok((char::from_u32(code).unwrap_or_default(), 1 + digits))
}

/// `\xhh` or `\x{h…}`.
fn hexadecimal(text: &str) -> Result<(char, usize), Fault> {
    let (digits, length) = match text[2..].strip_prefix('{') {
        Some(inside) => match inside.find('}') {
            Some(end) => (&inside[..end], 4 + end),
            None => return Err(bad_escape(text)),
        },
        None => match text.get(2..4) {
            Some(digits) => (digits, 4),
            None => return Err(bad_escape(text)),
        },
    };
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let code = if plain { u32::from_str_radix(digits, 16).ok() } else { None };
    match code.and_then(char::from_u32) {
        Some(c) => Ok((c, length)),
        None => Err(bad_escape(&text[..length])),
    }
}

/// `\pN`, `\p{Greek}`, `\p{^Greek}`, and with `P` for the others.
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
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let negated = text.starts_with(r"\P") != inverted;
    let class = format!(r"\{}{{{name}}}", if negated { 'P' } else { 'p' });
    if name.is_empty() || !name.chars().all(is_word) || regex::Regex::new(&class).is_err() {
        return bad(&text[..length]);
    }
    Ok((Escape::Class(class), length))
}
