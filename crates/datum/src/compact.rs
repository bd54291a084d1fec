//! Turns the JSON text of a client into canonical text, in one pass and mostly by copying.
//!
//! White space is dropped, keys are sorted, and numbers and escapes get their canonical spelling. Text with
//! pseudotypes, escaped keys, duplicate keys or syntax errors is left to the reader.

use std::ops::Range;

use crate::layout::Span;
use crate::print::TYPE_KEY;
use crate::{deep, escape, number};

/// Canonical text, preceded by as many reserved bytes as the caller asked for.
pub(crate) struct Compacted {
    /// The reserved bytes, then the text.
    pub text: Vec<u8>,
    /// The outermost value.
    pub root: Root,
}

/// The outermost value and the positions of its parts, counted from the start of the text.
pub(crate) enum Root {
    /// An object and its members.
    Object(Vec<Span>),
    /// An array and its items.
    Array(Vec<Range<usize>>),
}

/// Most bytes that sorting keys may move, per byte of text. Deeply nested objects in the worst order would be moved
/// once per level.
const MOVED_PER_BYTE_MAX: usize = 8;
/// Levels that are written by recursion. Deeper text is left to the reader, which does not recurse.
const LEVELS_MAX: usize = 500;
/// Most items of an array, or members of all open objects together. Longer text is left to the reader too, which
/// checks the memory budget as it goes.
const PARTS_MAX: usize = 1 << 20;
/// Integers of at most this many digits are printed exactly as they are spelled.
const EXACT_DIGITS_MAX: usize = 15;

/// The canonical form of `text`, or `None` if only the reader can handle it.
pub(crate) fn compact(text: &str, room: usize) -> Option<Compacted> {
    let mut out = Vec::with_capacity(room + text.len() + text.len() / 16);
    out.resize(room, 0);
    let mut writer = Writer {
        text,
        bytes: text.as_bytes(),
        at: 0,
        copied: 0,
        room,
        out,
        open: Vec::with_capacity(32),
        printed: Vec::new(),
        moved: 0,
        levels: 0,
    };
    let root = match writer.next_byte()? {
        b'{' => {
            let mut members = Vec::new();
            writer.object(Some(&mut members))?;
            Root::Object(members)
        }
        b'[' if holds_objects(&writer.bytes[writer.at..]) => {
            let mut items = Vec::new();
            writer.array(|start, end| items.push(start..end))?;
            Root::Array(items)
        }
        _ => return None,
    };
    if writer.next_byte().is_some() {
        return None;
    }
    writer.flush();
    Some(Compacted { text: writer.out, root })
}

/// Whether `text` begins an array whose first item is an object. Other arrays gain nothing from the stored form.
fn holds_objects(text: &[u8]) -> bool {
    let mut visible = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    visible.next() == Some(&b'[') && visible.next() == Some(&b'{')
}

/// The length of the number at the start of `text` if its spelling is certainly canonical: up to fifteen digits
/// survive a conversion to a double unchanged.
fn canonical_number(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| text[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let start = usize::from(text.first() == Some(&b'-'));
    let whole = digits(start);
    let mut end = start + whole;
    let zero = *text.get(start)? == b'0';
    let mut count = whole;
    if text.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        count += fraction;
        end += 1 + fraction;
        if fraction == 0 || text[end - 1] == b'0' || (zero && text[start + 2] == b'0') {
            return None;
        }
    } else if zero && start == 1 {
        return None;
    }
    let spelled = whole > 0 && count <= EXACT_DIGITS_MAX && (!zero || whole == 1);
    (spelled && !matches!(text.get(end), Some(b'e' | b'E'))).then_some(end)
}

/// A member of an object that has not ended yet.
#[derive(Clone, Copy)]
struct Member {
    /// Position of the key in the input; the key has no escapes.
    key: (usize, usize),
    /// Position of the member in the output.
    span: Span,
}

struct Writer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// Position in the input up to which it was read.
    at: usize,
    /// Position in the input up to which it was copied. The bytes between `copied` and `at` are canonical and are
    /// copied in one go.
    copied: usize,
    room: usize,
    out: Vec<u8>,
    /// Members of all objects that have not ended, innermost last.
    open: Vec<Member>,
    /// Scratch buffer for numbers and escapes that get another spelling.
    printed: Vec<u8>,
    /// Bytes that sorting keys has moved so far.
    moved: usize,
    /// Open arrays and objects inside the outermost one.
    levels: usize,
}

impl Writer<'_> {
    /// Copies the input that was read since the last copy.
    fn flush(&mut self) {
        self.out.extend_from_slice(&self.bytes[self.copied..self.at]);
        self.copied = self.at;
    }

    /// Writes `printed` in place of the input up to `end`, unless both are the same.
    fn replace(&mut self, end: usize) {
        if self.bytes[self.at..end] != self.printed[..] {
            self.flush();
            self.out.extend_from_slice(&self.printed);
            self.copied = end;
        }
        self.at = end;
    }

    /// Position in the text at which the next byte will be written.
    fn place(&self) -> usize {
        self.out.len() - self.room + self.at - self.copied
    }

    /// Skips white space and returns the byte after it.
    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        if byte > b' ' { Some(byte) } else { self.byte_after_space() }
    }

    fn byte_after_space(&mut self) -> Option<u8> {
        let rest = &self.bytes[self.at..];
        let space = rest.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.printed.clear();
        self.replace(self.at + space);
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next_byte()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self) -> Option<()> {
        match self.next_byte()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.level(|writer| writer.object(None)),
            b'[' => self.level(|writer| writer.array(|_, _| {})),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn level(&mut self, level: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        if self.levels == LEVELS_MAX {
            return None;
        }
        self.levels += 1;
        let written = deep::level(|| level(self));
        self.levels -= 1;
        written
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        if let Some(len) = canonical_number(&self.bytes[self.at..]) {
            self.at += len;
            return Some(());
        }
        let (value, len) = number::read_number(self.text.get(self.at..)?).ok()?;
        self.printed.clear();
        number::write_number(value, &mut self.printed);
        self.replace(self.at + len);
        Some(())
    }

    /// Writes a string. Returns whether it has no escapes.
    fn string(&mut self) -> Option<bool> {
        let mut end = escape::plain_end(self.bytes, self.at + 1);
        let plain = self.bytes.get(end) == Some(&b'"');
        while *self.bytes.get(end)? != b'"' {
            self.at = end;
            end = escape::plain_end(self.bytes, self.escape()?);
        }
        self.at = end + 1;
        Some(plain)
    }

    /// Writes the escape at the current position in its canonical spelling. Returns the position after it.
    fn escape(&mut self) -> Option<usize> {
        if self.bytes[self.at] != b'\\' {
            return None;
        }
        match self.bytes.get(self.at + 1)? {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => return Some(self.at + 2),
            _ => {}
        }
        let (character, after) = escape::read_escape(self.bytes, self.at).ok()?;
        self.printed.clear();
        escape::write_escaped(character.encode_utf8(&mut [0; 4]), &mut self.printed);
        self.replace(after);
        Some(after)
    }

    /// Writes an array and calls `item` with the start and end of each item.
    fn array(&mut self, mut item: impl FnMut(usize, usize)) -> Option<()> {
        self.at += 1;
        if self.next_byte()? == b']' {
            self.at += 1;
            return Some(());
        }
        for _ in 0..PARTS_MAX {
            self.next_byte()?;
            let start = self.place();
            self.value()?;
            let follows = self.next_byte()?;
            item(start, self.place());
            self.at += 1;
            match follows {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
        None
    }

    /// Writes an object. The positions of its members go to `members` if the caller wants them.
    fn object(&mut self, members: Option<&mut Vec<Span>>) -> Option<()> {
        self.at += 1;
        let first = self.open.len();
        if self.next_byte()? == b'}' {
            self.at += 1;
            return Some(());
        }
        let mut sorted = true;
        loop {
            let member = self.member()?;
            if self.open.len() > first {
                sorted &= self.key(self.open.len() - 1) < &self.bytes[member.key.0..member.key.1];
            }
            if self.open.len() == PARTS_MAX {
                return None;
            }
            self.open.push(member);
            self.value()?;
            match self.next_byte()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        if !sorted {
            self.sort(first)?;
        }
        self.at += 1;
        if let Some(members) = members {
            members.extend(self.open[first..].iter().map(|member| member.span));
        }
        self.open.truncate(first);
        Some(())
    }

    /// Writes a key and its colon.
    fn member(&mut self) -> Option<Member> {
        if self.next_byte()? != b'"' {
            return None;
        }
        let key_start = self.place() + 1;
        let start = self.at + 1;
        let plain = self.string()?;
        let key = (start, self.at - 1);
        if !plain || &self.bytes[key.0..key.1] == TYPE_KEY.as_bytes() {
            return None;
        }
        self.expect(b':')?;
        self.next_byte()?;
        Some(Member { key, span: Span { key_start, value_start: self.place() } })
    }

    fn key(&self, member: usize) -> &[u8] {
        let (start, end) = self.open[member].key;
        &self.bytes[start..end]
    }

    /// Sorts the open members from `first` on. The closing brace is not written yet.
    fn sort(&mut self, first: usize) -> Option<()> {
        self.flush();
        let place = |member: &Member| member.span.key_start - 1;
        let start = place(&self.open[first]);
        let end = self.place();
        self.moved += end - start;
        if self.moved > self.bytes.len().saturating_mul(MOVED_PER_BYTE_MAX) {
            return None;
        }
        let ends = self.open[first + 1..].iter().map(|next| place(next) - 1).chain([end]);
        let mut members: Vec<(Member, usize)> = self.open[first..].iter().copied().zip(ends).collect();
        let key = |member: &Member| &self.bytes[member.key.0..member.key.1];
        members.sort_by(|a, b| key(&a.0).cmp(key(&b.0)));
        if members.windows(2).any(|pair| key(&pair[0].0) == key(&pair[1].0)) {
            return None;
        }
        let old = self.out.split_off(self.room + start);
        for (index, (member, member_end)) in members.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            let from = place(&member);
            let to = self.out.len() - self.room;
            self.out.extend_from_slice(&old[from - start..member_end - start]);
            self.open[first + index] = Member {
                key: member.key,
                span: Span { key_start: to + 1, value_start: to + member.span.value_start - from },
            };
        }
        Some(())
    }
}
