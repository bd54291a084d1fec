//! The JSON reader: builds a tree of values, or a tree whose objects are still text.

use crate::escape::{self, EscapeFault};
use crate::json_error::{Fault, JsonError};
use crate::number::{self, NumberFault};
use crate::print::{TYPE_KEY, string_end};
use crate::value::Repr;
use crate::{Datum, Object, Text, ptype};

/// Returns false if reading is cancelled or there is no memory for the value.
pub(crate) type GoOn<'a> = &'a dyn Fn() -> bool;

/// Values that are read between two calls of `go_on`: some hundred kilobytes.
const VALUES_PER_CHECK: usize = 4096;

/// Reads a complete JSON text into a tree. Strings are copied.
pub(crate) fn read(text: &str) -> Result<Datum, JsonError> {
    Reader::new(text, Strings::Copied, Nested::Tree, &|| true).root()
}

/// Like [`read`], for shared text: long strings are slices of it.
pub(crate) fn read_shared(text: &Text, go_on: GoOn<'_>) -> Result<Datum, JsonError> {
    Reader::new(text, Strings::Sliced(text), Nested::Tree, go_on).root()
}

/// Reads canonical text. Its objects stay text and are read lazily.
///
/// Damaged text gives an error or a wrong value, never a panic.
pub(crate) fn read_stored(text: &Text) -> Result<Datum, JsonError> {
    Reader::new(text, Strings::Sliced(text), Nested::Text(text), &|| true).root()
}

/// Shorter strings are copied: a copy is cheaper than keeping the source alive.
const SLICED_BYTES_MIN: usize = 24;

#[derive(Clone, Copy)]
enum Strings<'a> {
    Copied,
    Sliced(&'a Text),
}

#[derive(Clone, Copy)]
enum Nested<'a> {
    Tree,
    Text(&'a Text),
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    strings: Strings<'a>,
    nested: Nested<'a>,
    /// Scratch buffer for strings with escapes.
    unescaped: String,
    go_on: GoOn<'a>,
    values_to_check: usize,
    /// The first duplicate key or invalid pseudotype. A syntax error anywhere in the text takes precedence.
    semantic_error: Option<JsonError>,
}

enum ValueStart {
    Whole(Datum),
    Part(Open),
}

/// An array or object that has not ended.
enum Open {
    Array(Vec<Datum>),
    Object(Members),
}

/// The members read so far, and the key of the next value.
struct Members {
    members: Vec<(Text, Datum)>,
    key: Text,
    sorted: bool,
    typed: bool,
}

impl Open {
    fn push(&mut self, value: Datum) {
        match self {
            Open::Array(items) => items.push(value),
            Open::Object(object) => {
                let key = std::mem::take(&mut object.key);
                object.sorted = object.sorted && object.members.last().is_none_or(|(last, _)| *last < key);
                object.members.push((key, value));
            }
        }
    }
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, strings: Strings<'a>, nested: Nested<'a>, go_on: GoOn<'a>) -> Reader<'a> {
        Reader {
            go_on,
            values_to_check: VALUES_PER_CHECK,
            text,
            bytes: text.as_bytes(),
            at: 0,
            strings,
            nested,
            semantic_error: None,
            unescaped: String::new(),
        }
    }

    fn root(mut self) -> Result<Datum, JsonError> {
        let value = self.whole();
        match (value, self.semantic_error) {
            (Ok(value), None) => Ok(value),
            (Ok(_), Some(semantic_error)) => Err(semantic_error),
            (Err(JsonError::Cancelled), _) => Err(JsonError::Cancelled),
            (Err(_), _) if self.bytes.contains(&0) => Err(JsonError::NulByte),
            (Err(fault), _) => Err(fault),
        }
    }

    fn whole(&mut self) -> Result<Datum, JsonError> {
        if self.next_byte().is_none() {
            return Err(self.fault(Fault::Empty));
        }
        let value = self.value()?;
        match self.next_byte() {
            None => Ok(value),
            Some(_) => Err(self.fault(Fault::RootFollowed)),
        }
    }

    /// Skips white space and returns the byte after it.
    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn fault(&self, fault: Fault) -> JsonError {
        JsonError::Syntax { fault, position: self.at }
    }

    /// Reads a value without recursion: text of a few megabytes can have as many levels.
    fn value(&mut self) -> Result<Datum, JsonError> {
        // The innermost open array or object is kept in a separate variable: most values have only one.
        let (mut innermost, mut around): (Option<Open>, Vec<Open>) = (None, Vec::new());
        loop {
            let mut value = match self.begin()? {
                ValueStart::Whole(value) => value,
                ValueStart::Part(open) => {
                    around.extend(innermost.replace(open));
                    continue;
                }
            };
            // A value may complete the array or object around it, which is then a value as well.
            loop {
                let Some(open) = &mut innermost else { return Ok(value) };
                open.push(value);
                if !self.ends(open)? {
                    break;
                }
                let ended = std::mem::replace(&mut innermost, around.pop());
                value = ended.map_or(Datum::Null, |ended| self.close(ended));
            }
        }
    }

    /// Reads a value without parts, or the start of one with parts, up to its first part.
    fn begin(&mut self) -> Result<ValueStart, JsonError> {
        self.check_go_on()?;
        Ok(ValueStart::Whole(match self.next_byte() {
            Some(b'"') => Datum::String(self.string()?),
            Some(b'{') => return self.object(),
            Some(b'[') => return Ok(self.array()),
            Some(b't') => self.word("true", Datum::Bool(true))?,
            Some(b'f') => self.word("false", Datum::Bool(false))?,
            Some(b'n') => self.word("null", Datum::Null)?,
            Some(_) => self.number()?,
            None => return Err(self.fault(Fault::InvalidValue)),
        }))
    }

    /// Calls `go_on` once in [`VALUES_PER_CHECK`] calls.
    #[inline]
    fn check_go_on(&mut self) -> Result<(), JsonError> {
        match self.values_to_check.checked_sub(1) {
            Some(left) => self.values_to_check = left,
            None if (self.go_on)() => self.values_to_check = VALUES_PER_CHECK,
            None => return Err(JsonError::Cancelled),
        }
        Ok(())
    }

    fn word(&mut self, word: &str, value: Datum) -> Result<Datum, JsonError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fault(Fault::InvalidValue));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Datum, JsonError> {
        // The position is at an ASCII byte or between two characters: a value never starts inside a character.
        let text = self.text.get(self.at..).unwrap_or_default();
        match number::read_number(text) {
            Ok((value, len)) => {
                self.at += len;
                Ok(Datum::Number(value))
            }
            Err(fault) => Err(self.fault(match fault {
                NumberFault::NoDigit => Fault::InvalidValue,
                NumberFault::NoFraction => Fault::MissingFraction,
                NumberFault::NoExponent => Fault::MissingExponent,
                NumberFault::TooBig => Fault::NumberTooBig,
            })),
        }
    }

    fn array(&mut self) -> ValueStart {
        self.at += 1;
        if self.next_byte() == Some(b']') {
            self.at += 1;
            return ValueStart::Whole(Datum::empty_array());
        }
        ValueStart::Part(Open::Array(Vec::new()))
    }

    fn object(&mut self) -> Result<ValueStart, JsonError> {
        if let Nested::Text(source) = self.nested
            && let Some(object) = self.object_text(source)
        {
            return Ok(ValueStart::Whole(object));
        }
        self.at += 1;
        if self.next_byte() == Some(b'}') {
            self.at += 1;
            return Ok(ValueStart::Whole(Datum::Object(Object::default())));
        }
        let key = self.key()?;
        let typed = *key == *TYPE_KEY;
        Ok(ValueStart::Part(Open::Object(Members { members: Vec::new(), key, sorted: true, typed })))
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<Text, JsonError> {
        if self.next_byte() != Some(b'"') {
            return Err(self.fault(Fault::MissingName));
        }
        let key = self.string()?;
        if self.next_byte() != Some(b':') {
            return Err(self.fault(Fault::MissingColon));
        }
        self.at += 1;
        Ok(key)
    }

    /// Whether `open` ends here. If not, reads up to its next part.
    fn ends(&mut self, open: &mut Open) -> Result<bool, JsonError> {
        let next = self.next_byte();
        match (open, next) {
            (Open::Array(_), Some(b',')) => {
                self.at += 1;
                Ok(false)
            }
            (Open::Object(object), Some(b',')) => {
                self.at += 1;
                object.key = self.key()?;
                object.typed = object.typed || *object.key == *TYPE_KEY;
                Ok(false)
            }
            (Open::Array(_), Some(b']')) | (Open::Object(_), Some(b'}')) => {
                self.at += 1;
                Ok(true)
            }
            (Open::Array(_), _) => Err(self.fault(Fault::MissingArrayComma)),
            (Open::Object(_), _) => Err(self.fault(Fault::MissingObjectComma)),
        }
    }

    fn close(&mut self, ended: Open) -> Datum {
        match ended {
            Open::Array(items) => Datum::from(items),
            Open::Object(Members { members, sorted, typed, .. }) => finish_object(members, sorted, typed)
                .unwrap_or_else(|semantic_error| {
                    self.semantic_error.get_or_insert(semantic_error);
                    Datum::Null
                }),
        }
    }

    /// Leaves the object at `at` as text, unless it may be a pseudotype.
    fn object_text(&mut self, source: &Text) -> Option<Datum> {
        if may_have_type(&self.bytes[self.at..]) {
            return None;
        }
        let end = skip_container(self.bytes, self.at)?;
        let text = source.as_bytes().slice(self.at..end);
        self.at = end;
        Some(Datum::Object(Object(Repr::Raw(text))))
    }

    fn string(&mut self) -> Result<Text, JsonError> {
        let start = self.at + 1;
        let end = escape::plain_end(self.bytes, start);
        if self.bytes.get(end) != Some(&b'"') {
            return self.escaped_string(start, end);
        }
        self.at = end + 1;
        let plain = &self.text[start..end];
        Ok(match self.strings {
            Strings::Sliced(source) if plain.len() >= SLICED_BYTES_MIN => source.slice_ref(plain),
            _ => Text::from(plain),
        })
    }

    /// Reads a string that contains an escape or an invalid byte at `special`.
    fn escaped_string(&mut self, start: usize, special: usize) -> Result<Text, JsonError> {
        let mut found = std::mem::take(&mut self.unescaped);
        found.clear();
        found.push_str(&self.text[start..special]);
        let mut at = special;
        loop {
            self.at = at;
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    let (character, after) = escape::read_escape(self.bytes, at)
                        .map_err(|fault| self.fault(escape_fault(fault)))?;
                    found.push(character);
                    at = after;
                }
                None | Some(0) => return Err(self.fault(Fault::MissingQuote)),
                Some(_) => return Err(self.fault(Fault::BadEscape)),
            }
            let end = escape::plain_end(self.bytes, at);
            found.push_str(&self.text[at..end]);
            at = end;
        }
        self.at = at + 1;
        let text = Text::from(found.as_str());
        self.unescaped = found;
        Ok(text)
    }
}

fn escape_fault(fault: EscapeFault) -> Fault {
    match fault {
        EscapeFault::Unknown => Fault::BadEscape,
        EscapeFault::Hex => Fault::BadHex,
        EscapeFault::Surrogate => Fault::BadSurrogate,
    }
}

/// The value of an object's members in the order of the text.
fn finish_object(mut members: Vec<(Text, Datum)>, sorted: bool, typed: bool) -> Result<Datum, JsonError> {
    if !sorted {
        members.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(JsonError::DuplicateKey(pair[0].0.clone()));
        }
    }
    if typed {
        return ptype::read(members).map_err(JsonError::BadPseudotype);
    }
    Ok(Datum::Object(Object::from_sorted(members)))
}

/// Whether the canonical object at the start of `json` may have a `$reql_type$` member: its first key does not sort
/// after it.
pub(crate) fn may_have_type(json: &[u8]) -> bool {
    match json.get(2..) {
        Some([b'\\', ..]) => true,
        Some(key) => &key[..key.len().min(TYPE_KEY.len())] <= TYPE_KEY.as_bytes(),
        None => false,
    }
}

/// Position after the object or array that begins at `start`, or `None` if it does not end.
pub(crate) fn skip_container(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    let mut depth = 0_usize;
    loop {
        let byte = *json.get(at)?;
        at += 1;
        match byte {
            b'"' => at = string_end(json, at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
}
