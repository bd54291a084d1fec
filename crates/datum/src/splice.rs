//! Changes a stored row without parsing the unchanged members: they are copied as text.

use crate::layout::{HEADER_BYTES, Keys, Layout, Span, seal};
use crate::value::Repr;
use crate::{Bytes, Datum, Object, Text, escape, print};

/// Objects with longer new values are not written into a row here: the text might not fit into memory. The code
/// that writes the row knows the limit.
const PUT_BYTES_MAX: usize = 4 << 20;

/// Applies `changes`, sorted by key, to a stored row by copying text. A change without a value removes its member.
/// `None` if the text cannot be copied, or a new value is large.
pub(crate) fn splice(row: &Bytes, changes: &[(Text, Option<Datum>)]) -> Option<Object> {
    let layout = Layout::of(row)?;
    let storable = |(key, value): &(Text, Option<Datum>)| {
        escape::plain_end(key.as_bytes(), 0) == key.len()
            && value
                .as_ref()
                .is_none_or(|value| value.json_may_fit(PUT_BYTES_MAX) && value.not_json().is_none())
    };
    if layout.escaped_keys || !changes.iter().all(storable) {
        return None;
    }
    let mut out = Spliced::new(layout);
    let mut next = 0;
    for (key, value) in changes {
        let at = layout.lower_bound(key.as_bytes())?;
        out.copy(next, at)?;
        let replaced = at < layout.count && layout.key(layout.span(at)?)? == key.as_bytes();
        next = at + usize::from(replaced);
        if let Some(value) = value {
            out.put(key, value);
        }
    }
    out.copy(next, layout.count)?;
    out.row.push(b'}');
    Some(Object(Repr::Raw(Bytes::from(seal(out.row, &out.members, Keys::Plain)))))
}

struct Spliced<'a> {
    from: Layout<'a>,
    row: Vec<u8>,
    members: Vec<Span>,
}

impl<'a> Spliced<'a> {
    fn new(from: Layout<'a>) -> Spliced<'a> {
        let mut row = Vec::with_capacity(HEADER_BYTES + from.text.len() + from.text.len() / 4 + 128);
        row.resize(HEADER_BYTES, 0);
        row.push(b'{');
        Spliced { from, row, members: Vec::with_capacity(from.count + 4) }
    }

    fn comma(&mut self) {
        if !self.members.is_empty() {
            self.row.push(b',');
        }
    }

    fn text_len(&self) -> usize {
        self.row.len() - HEADER_BYTES
    }

    /// Copies the members from `first` up to, but not including, `end`.
    fn copy(&mut self, first: usize, end: usize) -> Option<()> {
        if first >= end {
            return Some(());
        }
        self.comma();
        let start = self.from.span(first)?.key_start.checked_sub(1)?;
        let to = self.text_len();
        for member in first..end {
            let span = self.from.span(member)?;
            let moved = |place: usize| Some(to + place.checked_sub(start)?);
            self.members
                .push(Span { key_start: moved(span.key_start)?, value_start: moved(span.value_start)? });
        }
        let run = self.from.text.get(start..self.from.value_end(end - 1)?)?;
        self.row.extend_from_slice(run);
        Some(())
    }

    fn put(&mut self, key: &str, value: &Datum) {
        self.comma();
        let key_start = self.text_len() + 1;
        let value_start = key_start + key.len() + 2;
        self.members.push(Span { key_start, value_start });
        print::write_member(key, value, &mut self.row);
    }
}
