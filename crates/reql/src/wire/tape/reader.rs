//! Reads text into nodes, without recursion.

use std::borrow::Cow;

use super::scan::{escape, number_len, plain_end, small_integer};
use super::{Node, NotJson, Span, is_known};

/// Most levels of arrays and objects in a query. Each needs some stack when it is evaluated.
const DEPTH_MAX: usize = 100_000;

/// What may come next in the text.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    Value,
    /// A value, or the end of the array just begun.
    ValueOrEnd,
    /// A key, or the end of the object just begun.
    KeyOrEnd,
    /// A comma, or the end of the innermost array or object.
    CommaOrEnd,
}

/// The nodes of exactly one JSON value with optional white space around it.
pub(super) fn read(text: &str) -> Result<Vec<Node<'_>>, NotJson> {
    let nodes = Vec::with_capacity(text.len() / 8 + 4);
    let mut reader = Reader { text, at: 0, nodes, innermost: None, depth: 0 };
    reader.read()?;
    Ok(reader.nodes)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    nodes: Vec<Node<'a>>,
    /// The innermost open array or object.
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

    /// Ends the innermost array or object. Its length is the number of its commas plus one.
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
                // The integer zero has no sign; `-0.0` is not an integer.
                (if number == 0.0 && len == "-0".len() { 0.0 } else { number }, len)
            }
        };
        // A text has at most 2^32 bytes.
        self.nodes.push(Node::Number(number, self.at as u32));
        self.at += len;
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
