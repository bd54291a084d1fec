//! The JSON of a query as a flat list of nodes.
//!
//! A query may have tens of thousands of levels, so neither reading nor dropping it may recurse: nodes are stored
//! in sequence, and an array or object knows where it ends.

mod reader;
mod scan;

use std::borrow::Cow;

/// The bytes are not JSON, or nested too deeply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// One JSON value, or the header of an array or object.
#[derive(Debug)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    /// A number, and the position of its text.
    Number(f64, u32),
    String(Cow<'a, str>),
    Array(Span),
    /// Each member is its key, a string node, and its value.
    Object(Span),
}

/// The contents of an array or object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// The number of items or members.
    len: u32,
    /// The position after the last node inside; while the contents are being read, the position of the enclosing
    /// array or object.
    end: u32,
    /// Whether every value directly inside is a constant.
    items_known: bool,
}

impl Node<'_> {
    /// The name of the JSON type in error messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Node::Null => "NULL",
            Node::Bool(_) => "BOOL",
            Node::Number(..) => "NUMBER",
            Node::String(_) => "STRING",
            Node::Array(_) => "ARRAY",
            Node::Object(_) => "OBJECT",
        }
    }
}

/// A whole JSON text.
#[derive(Debug)]
pub(super) struct Tape<'a> {
    text: &'a str,
    nodes: Vec<Node<'a>>,
}

/// One value of a tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'t, 'a> {
    tape: &'t Tape<'a>,
    at: u32,
}

impl<'a> Tape<'a> {
    /// Parses exactly one JSON value with optional white space around it.
    pub(super) fn parse(text: &'a str) -> Result<Self, NotJson> {
        // Node positions have 32 bits; each node takes at least one byte of text.
        if u32::try_from(text.len()).is_err() {
            return Err(NotJson);
        }
        Ok(Tape { text, nodes: reader::read(text)? })
    }

    pub(super) fn root(&self) -> Value<'_, 'a> {
        Value { tape: self, at: 0 }
    }
}

impl<'t, 'a> Value<'t, 'a> {
    /// The value itself.
    pub(super) fn node(self) -> &'t Node<'a> {
        &self.tape.nodes[self.at as usize]
    }

    /// The text of a number; empty for other values.
    pub(super) fn number_text(self) -> &'a str {
        let Node::Number(_, start) = self.node() else { return "" };
        let text = self.tape.text.get(*start as usize..).unwrap_or_default();
        text.get(..scan::number_len(text.as_bytes()).unwrap_or_default()).unwrap_or_default()
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

    /// Whether, as a term, it is a constant: a plain value, an object of constants, or the term that makes an array
    /// of constants.
    pub(super) fn is_known(self) -> bool {
        is_known(&self.tape.nodes, self.at)
    }

    /// The position after the value.
    fn end(self) -> u32 {
        match self.node() {
            Node::Array(span) | Node::Object(span) => span.end,
            _ => self.at + 1,
        }
    }
}

/// Consecutive values.
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

/// Consecutive keys and values.
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

/// MAKE_ARRAY, the only term that can be a constant.
const MAKE_ARRAY: f64 = 2.0;

fn is_known(nodes: &[Node<'_>], at: u32) -> bool {
    let at = at as usize;
    match &nodes[at] {
        Node::Object(span) => span.items_known,
        Node::Array(span) if span.len == 2 => match (&nodes[at + 1], &nodes[at + 2]) {
            (Node::Number(id, _), Node::Array(items)) => *id == MAKE_ARRAY && items.items_known,
            _ => false,
        },
        Node::Array(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
