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
    Array(Span),
    /// Each member is its key, a string node, and its value.
    Object(Span),
}

/// What lies between the brackets of an array or object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Items or members.
    len: u32,
    /// The position after the last node inside; while it is being read, that of the array or
    /// object around it.
    end: u32,
    /// Whether every value directly inside is known before anything runs.
    items_known: bool,
}

impl Node<'_> {
    /// The name of the JSON type in error messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Node::Null => "NULL",
            Node::Bool(_) => "BOOL",
            Node::Number(_) => "NUMBER",
            Node::String(_) => "STRING",
            Node::Array(_) => "ARRAY",
            Node::Object(_) => "OBJECT",
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
    pub(super) fn parse(text: &'a str) -> Result<Self, NotJson> {
        // Nodes are addressed by 32 bits; each takes at least one byte.
        if u32::try_from(text.len()).is_err() {
            return Err(NotJson);
        }
        let nodes = Vec::with_capacity(text.len() / 8 + 4);
        let mut reader = Reader { text, at: 0, nodes, innermost: None, depth: 0 };
        reader.read()?;
        Ok(Tape { nodes: reader.nodes })
    }

    /// Whether the term that the closed node at `at` is has a known value.
    fn is_known(&self, at: u32) -> bool {
        is_known(&self.nodes, at)
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
            Node::Array(span) => Some(Siblings { next: Value { at: self.at + 1, ..self }, left: span.len }),
            _ => None,
        }
    }

    /// Keys and values, if it is an object.
    pub(super) fn members(self) -> Option<Members<'t, 'a>> {
        match self.node() {
            Node::Object(span) => {
                let next = Value { at: self.at + 1, ..self };
                Some(Members(Siblings { next, left: span.len * 2 }))
            }
            _ => None,
        }
    }

    /// Whether, as a term, it is known before anything runs: a plain value, an object of known
    /// values, or the term that makes an array of them.
    pub(super) fn is_known(self) -> bool {
        self.tape.is_known(self.at)
    }

    /// The position after the value.
    fn end(self) -> u32 {
        match self.node() {
            Node::Array(span) | Node::Object(span) => span.end,
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

/// Keys and values that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members<'t, 'a>(Siblings<'t, 'a>);

impl<'t, 'a> Iterator for Members<'t, 'a> {
    type Item = (&'t Cow<'a, str>, Value<'t, 'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next()?;
        let value = self.0.next()?;
        match key.node() {
            Node::String(key) => Some((key, value)),
            _ => None,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let members = self.0.left as usize / 2;
        (members, Some(members))
    }
}

impl ExactSizeIterator for Members<'_, '_> {}

/// MAKE_ARRAY, the one term whose value can be known.
const MAKE_ARRAY: f64 = 2.0;

fn is_known(nodes: &[Node<'_>], at: u32) -> bool {
    let at = at as usize;
    match &nodes[at] {
        Node::Object(span) => span.items_known,
        Node::Array(span) if span.len == 2 => match (&nodes[at + 1], &nodes[at + 2]) {
            (Node::Number(id), Node::Array(items)) => *id == MAKE_ARRAY && items.items_known,
            _ => false,
        },
        Node::Array(_) => false,
        _ => true,
    }
}

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
    /// The innermost array or object that has not ended.
    innermost: Option<u32>,
    depth: usize,
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
            if self.innermost.is_none() {
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
            b'[' => return self.open(Node::Array, Expect::ValueOrEnd),
            b'{' => return self.open(Node::Object, Expect::KeyOrEnd),
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

    fn open(&mut self, node: fn(Span) -> Node<'a>, expect: Expect) -> Result<Expect, NotJson> {
        if self.depth >= DEPTH_MAX {
            return Err(NotJson);
        }
        self.at += 1;
        self.depth += 1;
        let around = self.innermost.unwrap_or(u32::MAX);
        self.innermost = Some(self.nodes.len() as u32);
        self.nodes.push(node(Span { len: 1, end: around, items_known: true }));
        Ok(expect)
    }

    /// Ends the innermost array or object. Its length was counted by commas, from 1.
    fn close(&mut self) -> Result<Expect, NotJson> {
        self.at += 1;
        self.depth -= 1;
        let start = self.innermost.ok_or(NotJson)?;
        let after = self.nodes.len() as u32;
        let span = self.span(start)?;
        let around = std::mem::replace(&mut span.end, after);
        if after == start + 1 {
            span.len = 0;
        }
        self.innermost = Some(around).filter(|around| *around != u32::MAX);
        if self.innermost.is_some() && !is_known(&self.nodes, start) {
            self.span(around)?.items_known = false;
        }
        Ok(Expect::CommaOrEnd)
    }

    fn span(&mut self, at: u32) -> Result<&mut Span, NotJson> {
        match &mut self.nodes[at as usize] {
            Node::Array(span) | Node::Object(span) => Ok(span),
            _ => Err(NotJson),
        }
    }

    fn ends_innermost(&self, byte: u8) -> bool {
        let innermost = self.innermost.map(|start| &self.nodes[start as usize]);
        matches!((innermost, byte), (Some(Node::Array(_)), b']') | (Some(Node::Object(_)), b'}'))
    }

    fn comma(&mut self) -> Result<Expect, NotJson> {
        self.at += 1;
        let innermost = self.innermost.ok_or(NotJson)?;
        match &mut self.nodes[innermost as usize] {
            Node::Array(span) => {
                span.len += 1;
                Ok(Expect::Value)
            }
            Node::Object(span) => {
                span.len += 1;
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
        let (number, len) = match small_integer(bytes) {
            Some(small) => small,
            None => {
                let len = number_len(bytes).ok_or(NotJson)?;
                let number: f64 = self.text[self.at..self.at + len].parse().map_err(|_| NotJson)?;
                if !number.is_finite() {
                    return Err(NotJson);
                }
                (number, len)
            }
        };
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

/// The plain integer of a few digits at the start of `bytes`, which most numbers of a query are,
/// and its length.
fn small_integer(bytes: &[u8]) -> Option<(f64, usize)> {
    const DIGITS_MAX: usize = 15;
    let mut value: u64 = 0;
    let mut len = 0;
    while let Some(digit @ b'0'..=b'9') = bytes.get(len) {
        value = value * 10 + u64::from(digit - b'0');
        len += 1;
        if len > DIGITS_MAX {
            return None;
        }
    }
    let ends = !matches!(bytes.get(len), Some(b'.' | b'e' | b'E'));
    let plain = len == 1 || (len > 1 && bytes[0] != b'0');
    // Up to 15 digits are exact.
    (ends && plain).then_some((value as f64, len))
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
