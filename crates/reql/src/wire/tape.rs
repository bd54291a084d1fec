//! The bytes of a query as a flat list of JSON nodes.
//!
//! A query may be nested tens of thousands of levels deep, so that neither reading nor dropping
//! it may recurse: nodes lie one after the other, and an array or object knows where it ends.

use std::borrow::Cow;

/// Levels of arrays and objects a query may have. Each needs some stack when it is evaluated.
const DEPTH_MAX: usize = 100_000;

/// The bytes are not JSON, or nested deeper than any query needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// One JSON value, or the frame around several.
#[derive(Debug)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    Number(f64),
    String(Cow<'a, str>),
    /// `end` is the position after the last item.
    Array {
        len: u32,
        end: u32,
    },
    /// Each member is its key, a string node, and its value. `end` as for arrays.
    Object {
        len: u32,
        end: u32,
    },
}

impl Node<'_> {
    /// The name of the JSON type in error messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Node::Null => "NULL",
            Node::Bool(_) => "BOOL",
            Node::Number(_) => "NUMBER",
            Node::String(_) => "STRING",
            Node::Array { .. } => "ARRAY",
            Node::Object { .. } => "OBJECT",
        }
    }
}

/// A whole JSON text.
#[derive(Debug)]
pub(super) struct Tape<'a> {
    nodes: Vec<Node<'a>>,
}

/// One value of a tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'t, 'a> {
    tape: &'t Tape<'a>,
    at: u32,
}

impl<'a> Tape<'a> {
    /// Reads exactly one JSON value and white space around it.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, NotJson> {
        // Nodes are addressed by 32 bits; every node but the root takes at least two bytes.
        let text = std::str::from_utf8(bytes).map_err(|_| NotJson)?;
        if u32::try_from(text.len()).is_err() {
            return Err(NotJson);
        }
        let nodes = Vec::with_capacity(text.len() / 8 + 4);
        let mut reader = Reader { text, at: 0, nodes, open: Vec::new() };
        reader.read()?;
        Ok(Tape { nodes: reader.nodes })
    }

    /// The value the text consists of.
    pub(super) fn root(&self) -> Value<'_, 'a> {
        Value { tape: self, at: 0 }
    }
}

impl<'t, 'a> Value<'t, 'a> {
    /// The value itself.
    pub(super) fn node(self) -> &'t Node<'a> {
        &self.tape.nodes[self.at as usize]
    }

    /// The items, if it is an array.
    pub(super) fn items(self) -> Option<Siblings<'t, 'a>> {
        match self.node() {
            Node::Array { len, .. } => Some(Siblings { next: Value { at: self.at + 1, ..self }, left: *len }),
            _ => None,
        }
    }

    /// Keys and values, if it is an object.
    pub(super) fn members(self) -> Option<impl Iterator<Item = (&'t str, Value<'t, 'a>)>> {
        let Node::Object { len, .. } = self.node() else { return None };
        let mut both = Siblings { next: Value { at: self.at + 1, ..self }, left: *len * 2 };
        Some(std::iter::from_fn(move || {
            let key = both.next()?.text().unwrap_or_default();
            both.next().map(|value| (key, value))
        }))
    }

    /// The text, if it is a string.
    pub(super) fn text(self) -> Option<&'t str> {
        match self.node() {
            Node::String(text) => Some(text),
            _ => None,
        }
    }

    /// The position after the value.
    fn end(self) -> u32 {
        match self.node() {
            Node::Array { end, .. } | Node::Object { end, .. } => *end,
            _ => self.at + 1,
        }
    }
}

/// Values that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Siblings<'t, 'a> {
    next: Value<'t, 'a>,
    left: u32,
}

impl<'t, 'a> Iterator for Siblings<'t, 'a> {
    type Item = Value<'t, 'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let value = self.next;
        self.next.at = value.end();
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Siblings<'_, '_> {}

/// What may come next in the text.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    /// A value.
    Value,
    /// A value, or the end of the array just begun.
    ValueOrEnd,
    /// A key, or the end of the object just begun.
    KeyOrEnd,
    /// A comma, or the end of the innermost array or object.
    CommaOrEnd,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    nodes: Vec<Node<'a>>,
    /// Positions of the arrays and objects not yet ended.
    open: Vec<u32>,
}

impl<'a> Reader<'a> {
    fn read(&mut self) -> Result<(), NotJson> {
        let mut expect = Expect::Value;
        loop {
            let byte = self.skip_space();
            expect = match (expect, byte) {
                (Expect::ValueOrEnd, Some(b']')) | (Expect::KeyOrEnd, Some(b'}')) => self.close()?,
                (Expect::KeyOrEnd, Some(b'"')) => self.key()?,
                (Expect::Value | Expect::ValueOrEnd, Some(first)) => self.value(first)?,
                (Expect::CommaOrEnd, Some(b',')) => self.comma()?,
                (Expect::CommaOrEnd, Some(byte)) if self.ends_innermost(byte) => self.close()?,
                _ => return Err(NotJson),
            };
            if self.open.is_empty() {
                return if self.skip_space().is_none() { Ok(()) } else { Err(NotJson) };
            }
        }
    }

    fn skip_space(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn value(&mut self, first: u8) -> Result<Expect, NotJson> {
        match first {
            b'[' => return self.open(Node::Array { len: 1, end: 0 }, Expect::ValueOrEnd),
            b'{' => return self.open(Node::Object { len: 1, end: 0 }, Expect::KeyOrEnd),
            b'"' => {
                let text = self.string()?;
                self.nodes.push(Node::String(text));
            }
            b'n' => self.word("null", Node::Null)?,
            b't' => self.word("true", Node::Bool(true))?,
            b'f' => self.word("false", Node::Bool(false))?,
            _ => self.number()?,
        }
        Ok(Expect::CommaOrEnd)
    }

    fn open(&mut self, node: Node<'a>, expect: Expect) -> Result<Expect, NotJson> {
        if self.open.len() >= DEPTH_MAX {
            return Err(NotJson);
        }
        self.at += 1;
        self.open.push(self.nodes.len() as u32);
        self.nodes.push(node);
        Ok(expect)
    }

    /// Ends the innermost array or object. Its length was counted by commas, from 1.
    fn close(&mut self) -> Result<Expect, NotJson> {
        self.at += 1;
        let start = self.open.pop().ok_or(NotJson)?;
        let after = self.nodes.len() as u32;
        if let Node::Array { len, end } | Node::Object { len, end } = &mut self.nodes[start as usize] {
            *end = after;
            if after == start + 1 {
                *len = 0;
            }
        }
        Ok(Expect::CommaOrEnd)
    }

    fn ends_innermost(&self, byte: u8) -> bool {
        let innermost = self.open.last().map(|&start| &self.nodes[start as usize]);
        matches!((innermost, byte), (Some(Node::Array { .. }), b']') | (Some(Node::Object { .. }), b'}'))
    }

    fn comma(&mut self) -> Result<Expect, NotJson> {
        self.at += 1;
        let innermost = *self.open.last().ok_or(NotJson)?;
        match &mut self.nodes[innermost as usize] {
            Node::Array { len, .. } => {
                *len += 1;
                Ok(Expect::Value)
            }
            Node::Object { len, .. } => {
                *len += 1;
                if self.skip_space() == Some(b'"') { self.key() } else { Err(NotJson) }
            }
            _ => Err(NotJson),
        }
    }

    fn key(&mut self) -> Result<Expect, NotJson> {
        let key = self.string()?;
        self.nodes.push(Node::String(key));
        if self.skip_space() != Some(b':') {
            return Err(NotJson);
        }
        self.at += 1;
        Ok(Expect::Value)
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Result<(), NotJson> {
        if !self.text[self.at..].starts_with(word) {
            return Err(NotJson);
        }
        self.at += word.len();
        self.nodes.push(node);
        Ok(())
    }

    fn number(&mut self) -> Result<(), NotJson> {
        let bytes = &self.text.as_bytes()[self.at..];
        let len = number_len(bytes).ok_or(NotJson)?;
        let digits = &self.text[self.at..self.at + len];
        let number: f64 = digits.parse().map_err(|_| NotJson)?;
        if !number.is_finite() {
            return Err(NotJson);
        }
        self.at += len;
        self.nodes.push(Node::Number(number));
        Ok(())
    }

    /// Reads the string whose opening quote is at the current position.
    fn string(&mut self) -> Result<Cow<'a, str>, NotJson> {
        let text = self.text;
        let bytes = text.as_bytes();
        let start = self.at + 1;
        let mut end = plain_end(bytes, start);
        if bytes.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(Cow::Borrowed(&text[start..end]));
        }
        let mut unescaped = String::with_capacity(2 * (end - start) + 16);
        let mut from = start;
        loop {
            unescaped.push_str(&text[from..end]);
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    let (character, after) = escape(text, end + 1)?;
                    unescaped.push(character);
                    from = after;
                }
                _ => return Err(NotJson),
            }
            end = plain_end(bytes, from);
        }
        self.at = end + 1;
        Ok(Cow::Owned(unescaped))
    }
}

/// The first position from `start` on that holds a quote, a backslash or a control character,
/// or the length.
fn plain_end(bytes: &[u8], start: usize) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero_byte = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let mut at = start;
    while let Some(word) = bytes.get(at..at + 8).and_then(|lane| lane.try_into().ok()) {
        let word = u64::from_le_bytes(word);
        let quote = zero_byte(word ^ (LOW * u64::from(b'"')));
        let backslash = zero_byte(word ^ (LOW * u64::from(b'\\')));
        let control = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
        let special = quote | backslash | control;
        if special != 0 {
            // The lowest mark is exact: a borrow can only spoil marks above a true one.
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
        at += 1;
    }
    at
}

/// The character of the escape whose letter is at `at`, and the position after it.
fn escape(text: &str, at: usize) -> Result<(char, usize), NotJson> {
    let character = match text.as_bytes().get(at) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(text, at + 1),
        _ => return Err(NotJson),
    };
    Ok((character, at + 1))
}

fn unicode_escape(text: &str, at: usize) -> Result<(char, usize), NotJson> {
    let high = hex_unit(text, at)?;
    if let Some(character) = char::from_u32(high) {
        return Ok((character, at + 4));
    }
    let low_follows = text.get(at + 4..at + 6) == Some("\\u");
    let low = if low_follows { hex_unit(text, at + 6)? } else { return Err(NotJson) };
    if !(0xd800..0xdc00).contains(&high) || !(0xdc00..0xe000).contains(&low) {
        return Err(NotJson);
    }
    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(code).map(|character| (character, at + 10)).ok_or(NotJson)
}

fn hex_unit(text: &str, at: usize) -> Result<u32, NotJson> {
    let digits = text.get(at..at + 4).ok_or(NotJson)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(NotJson);
    }
    u32::from_str_radix(digits, 16).map_err(|_| NotJson)
}

/// The length of the JSON number at the start of `bytes`.
fn number_len(bytes: &[u8]) -> Option<usize> {
    let digits =
        |from: usize| bytes.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && bytes[at] == b'0') {
        return None;
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at + 1 + sign);
        if exponent == 0 {
            return None;
        }
        at += 1 + sign + exponent;
    }
    Some(at)
}

#[cfg(test)]
mod tests;
