//! Writes the numbered tree of a term in wire form, as RethinkDB writes it.

use datum::Datum;

use super::parts::is_datum;
use crate::deep;
use crate::wire::bounded_text::BoundedText;
use crate::wire::tape::{Node, Tape, Value};

/// The numbers that the terms of a tree get.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    /// One after the other, in the order in which RethinkDB visits the terms, beginning with this one.
    From(u32),
    /// Zero for all terms.
    Zero,
}

impl Numbers {
    /// The number of the root of the tree.
    pub(super) fn first(self) -> u32 {
        match self {
            Numbers::From(first) => first,
            Numbers::Zero => 0,
        }
    }
}

/// The text of the tree of `term`; `None` if it has more than `bytes_max` bytes.
pub(super) fn tree(term: Value<'_, '_>, numbers: Numbers, bytes_max: usize) -> Option<Vec<u8>> {
    let mut writer = Writer { out: BoundedText::new(bytes_max), numbers };
    writer.term(term);
    writer.out.finish()
}

/// A JSON text, as RethinkDB writes it again; `None` if it is not JSON.
pub(crate) fn json_text(text: &str) -> Option<String> {
    let tape = Tape::parse(text).ok()?;
    let mut writer = Writer { out: BoundedText::new(i32::MAX as usize), numbers: Numbers::Zero };
    writer.plain(tape.root());
    String::from_utf8(writer.out.finish()?).ok()
}

struct Writer {
    out: BoundedText,
    numbers: Numbers,
}

impl Writer {
    fn term(&mut self, term: Value<'_, '_>) {
        if self.out.is_over() {
            return;
        }
        let number = self.next_number();
        deep::level(|| match term.node() {
            Node::Array(_) => self.raw_term(term),
            Node::Object(_) => {
                self.out.push(b"[3,");
                self.members(term, Writer::term);
            }
            _ => {
                self.out.push(b"[1,");
                self.plain(term);
            }
        });
        self.out.push(format!(",{number}]").as_bytes());
    }

    fn next_number(&mut self) -> u32 {
        let number = self.numbers.first();
        if let Numbers::From(next) = &mut self.numbers {
            *next = next.saturating_add(1);
        }
        number
    }

    /// A term with its parts as they were sent, without its end.
    fn raw_term(&mut self, term: Value<'_, '_>) {
        self.out.push(b"[");
        for (i, part) in term.items().into_iter().flatten().enumerate() {
            if i > 0 {
                self.out.push(b",");
            }
            match part.node() {
                Node::Array(_) => self.items(part, Writer::term),
                Node::Object(_) if !is_datum(term) => self.members(part, Writer::term),
                _ => self.plain(part),
            }
        }
    }

    /// A JSON value that is not a term.
    fn plain(&mut self, value: Value<'_, '_>) {
        match value.node() {
            Node::Null => self.out.push(b"null"),
            Node::Bool(true) => self.out.push(b"true"),
            Node::Bool(false) => self.out.push(b"false"),
            Node::Number(number, _) => self.out.push(number_text(*number, value.number_text()).as_bytes()),
            Node::String(text) => self.out.json(&Datum::from(&**text)),
            Node::Array(_) => deep::level(|| self.items(value, Writer::plain)),
            Node::Object(_) => deep::level(|| self.members(value, Writer::plain)),
        }
    }

    fn items(&mut self, array: Value<'_, '_>, write: fn(&mut Writer, Value<'_, '_>)) {
        self.out.push(b"[");
        for (i, item) in array.items().into_iter().flatten().enumerate() {
            if i > 0 {
                self.out.push(b",");
            }
            write(self, item);
        }
        self.out.push(b"]");
    }

    fn members(&mut self, object: Value<'_, '_>, write: fn(&mut Writer, Value<'_, '_>)) {
        self.out.push(b"{");
        for (i, (name, value)) in object.members().into_iter().flatten().enumerate() {
            if i > 0 {
                self.out.push(b",");
            }
            self.out.json(&Datum::from(&**name));
            self.out.push(b":");
            write(self, value);
        }
        self.out.push(b"}");
    }
}

/// The number `text`, whose value is `number`, as RethinkDB writes it: an integer of 64 bits has no fraction, any other
/// number has a fraction or an exponent.
fn number_text(number: f64, text: &str) -> String {
    let is_integer = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    match is_integer {
        // The integer zero has no sign.
        true if number == 0.0 => "0".to_owned(),
        true => text.to_owned(),
        false => double_text(number),
    }
}

/// A double as RethinkDB writes it, also if it is an integer.
pub(crate) fn double_text(number: f64) -> String {
    let text = datum::format_number(number);
    match text.contains(['.', 'e']) {
        true => text,
        false => text + ".0",
    }
}
