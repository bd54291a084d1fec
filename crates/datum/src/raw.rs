//! Reads members of an object's stored text without building the whole object.

use std::ops::Range;

use crate::layout::{HEADER_BYTES, Layout, is_row, text_range};
use crate::print::string_end;
use crate::value::Repr;
use crate::{Bytes, Datum, Object, Text, escape, reader};

/// The value at `range` of canonical text. Damaged text gives `null`; the checksum of the row was verified before.
#[inline]
pub(crate) fn value(source: &Bytes, range: Range<usize>) -> Datum {
    let Some(text) = source.get(range.clone()) else { return Datum::Null };
    match text {
        [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => string(source, range.start + 1..range.end - 1),
        [b'{', ..] if !reader::may_have_type(text) => Datum::Object(Object(Repr::Raw(source.slice(range)))),
        b"true" => Datum::Bool(true),
        b"false" => Datum::Bool(false),
        b"null" => Datum::Null,
        _ => parsed(source, range),
    }
}

#[inline]
fn string(source: &Bytes, range: Range<usize>) -> Datum {
    Text::try_from(source.slice(range)).map_or(Datum::Null, Datum::String)
}

fn parsed(source: &Bytes, range: Range<usize>) -> Datum {
    let Ok(text) = Text::try_from(source.slice(range.clone())) else { return Datum::Null };
    match reader::read_stored(&text) {
        Ok(value) => value,
        // An object that is not valid as its `$reql_type$` is returned as an object.
        Err(_) if text.starts_with('{') => Datum::Object(Object(Repr::Raw(source.slice(range)))),
        Err(_) => Datum::Null,
    }
}

/// The key whose escaped text is at `range`.
pub(crate) fn key(source: &Bytes, range: Range<usize>) -> Text {
    let Some(text) = source.get(range.clone()) else { return Text::new() };
    if !text.contains(&b'\\') {
        return Text::try_from(source.slice(range)).unwrap_or_default();
    }
    match parsed(source, range.start.saturating_sub(1)..range.end + 1) {
        Datum::String(text) => text,
        _ => Text::new(),
    }
}

/// Position of a member's key and value in the source.
pub(crate) struct Member {
    /// The escaped key, without quotes.
    pub key: Range<usize>,
    pub value: Range<usize>,
}

/// The position of the value of member `name` in a stored row or text.
#[inline]
pub(crate) fn find(stored: &[u8], name: &str) -> Option<Range<usize>> {
    if !is_row(stored) {
        return find_in_text(stored, name);
    }
    let layout = Layout::of(stored)?;
    if layout.escaped_keys {
        return find_in_text(stored, name);
    }
    let (mut low, mut high) = (0, layout.count);
    while low < high {
        let middle = low + (high - low) / 2;
        let span = layout.span(middle)?;
        match layout.key(span)?.cmp(name.as_bytes()) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                let end = layout.value_end(middle)?;
                return Some(HEADER_BYTES + span.value_start..HEADER_BYTES + end);
            }
        }
    }
    None
}

/// Like [`find`], but compares one member after the other.
fn find_in_text(stored: &[u8], name: &str) -> Option<Range<usize>> {
    let mut wanted = Vec::with_capacity(name.len() + 8);
    escape::write_escaped(name, &mut wanted);
    Members::of(stored)
        .find(|member| stored.get(member.key.clone()) == Some(&wanted[..]))
        .map(|member| member.value)
}

/// Iterates over the members of a stored row or text. Ends early if the text is damaged.
pub(crate) struct Members<'a> {
    text: &'a [u8],
    base: usize,
    at: usize,
}

impl<'a> Members<'a> {
    /// The members of `stored`; their ranges are positions in `stored`.
    pub(crate) fn of(stored: &'a [u8]) -> Members<'a> {
        let range = text_range(stored);
        Members { base: range.start, text: &stored[range], at: 1 }
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        if self.text.get(self.at) == Some(&b',') {
            self.at += 1;
        }
        if self.text.get(self.at) != Some(&b'"') {
            return None;
        }
        let key_start = self.at + 1;
        let key_end = string_end(self.text, key_start) - 1;
        if self.text.get(key_end + 1) != Some(&b':') {
            return None;
        }
        let value_start = key_end + 2;
        let value_end = value_end(self.text, value_start)?;
        self.at = value_end;
        let base = self.base;
        Some(Member { key: base + key_start..base + key_end, value: base + value_start..base + value_end })
    }
}

/// Position after the value that begins at `start`.
fn value_end(text: &[u8], start: usize) -> Option<usize> {
    match *text.get(start)? {
        b'"' => Some(string_end(text, start + 1)),
        b'{' | b'[' => reader::skip_container(text, start),
        _ => {
            let rest = &text[start..];
            let len = rest.iter().position(|b| matches!(b, b',' | b'}' | b']'))?;
            Some(start + len)
        }
    }
}
