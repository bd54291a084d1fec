//! Prints values: compact canonical JSON for the wire and the disk, and indented text for messages.

use crate::layout;
use crate::value::{Members, Repr};
use crate::{Bytes, Datum, Kind, Object, Text, Time, binary, cancel, deep, escape, number};

/// The key that makes an object a pseudotype.
pub(crate) const TYPE_KEY: &str = "$reql_type$";
/// Longest compact text of a value that messages show completely. A value with shared parts may have a text larger
/// than all memory.
const COMPACT_BYTES_MAX: usize = 16 << 20;
/// Longest indented text of such a value: the longest string that is allowed.
const PRETTY_BYTES_MAX: usize = 128 << 20;
/// Longest text of a value in a truncated message, including the `...`.
const TRUNCATED_BYTES: usize = 300;
/// Deepest indentation, so that a message grows no faster than its value.
const TABS_MAX: usize = 1000;

impl Datum {
    /// Appends the compact JSON text: keys in byte order, pseudotypes as `$reql_type$` objects.
    ///
    /// `minval` and `maxval` have no JSON; they print as `r.minval` and `r.maxval`. See [`Datum::not_json`].
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Datum::MinVal => out.extend_from_slice(b"r.minval"),
            Datum::MaxVal => out.extend_from_slice(b"r.maxval"),
            Datum::Null => out.extend_from_slice(b"null"),
            Datum::Bool(true) => out.extend_from_slice(b"true"),
            Datum::Bool(false) => out.extend_from_slice(b"false"),
            Datum::Number(n) => number::write_number(*n, out),
            Datum::String(text) => escape::write_string(text, out),
            Datum::Array(items) => deep::level(|| write_array(items, out)),
            Datum::Object(object) => object.write_json(out),
            Datum::Binary(bytes) => write_binary(bytes, out),
            Datum::Time(time) => write_time(*time, out),
            Datum::Geometry(shape) => write_geometry(shape, out),
        }
    }

    /// Returns [`Datum::write_json`] as a string.
    #[must_use]
    pub fn to_json_string(&self) -> String {
        let mut out = Vec::new();
        self.write_json(&mut out);
        into_string(out)
    }

    /// The text that messages show: one member or item per line, a tab per level, and a tab after each key's colon.
    /// A value of more than 16 MiB is cut as in [`Datum::truncated`].
    #[must_use]
    pub fn pretty(&self) -> String {
        if !self.json_may_fit(COMPACT_BYTES_MAX) {
            return self.truncated();
        }
        let mut compact = Vec::new();
        self.write_json(&mut compact);
        let text = indent(&compact, PRETTY_BYTES_MAX);
        if text.len() > PRETTY_BYTES_MAX { self.truncated() } else { into_string(text) }
    }

    /// [`Datum::pretty`], cut to 300 bytes and ended with `...` if it is longer.
    #[must_use]
    pub fn truncated(&self) -> String {
        let mut compact = Vec::new();
        self.write_beginning(2 * TRUNCATED_BYTES, &mut compact);
        let mut text = into_string(indent(&compact, TRUNCATED_BYTES));
        if text.len() > TRUNCATED_BYTES {
            text.truncate(cut(&text, TRUNCATED_BYTES - 3).len());
            text.push_str("...");
        }
        text
    }

    /// Appends the output of [`Datum::write_json`] if it has at most `enough` bytes. For a longer value, at least
    /// the first `enough` bytes are right.
    fn write_beginning(&self, enough: usize, out: &mut Vec<u8>) {
        match self {
            Datum::String(text) => escape::write_string(cut(text, enough), out),
            Datum::Binary(bytes) => write_binary(&bytes.slice(..bytes.len().min(enough)), out),
            Datum::Array(items) => {
                let parts = items.iter().map(|item| (None, item));
                write_parts(b"[]", parts, enough, out);
            }
            Datum::Object(Object(Repr::Tree(tree))) => {
                let parts = tree.0.iter().map(|(key, value)| (Some(&**key), value));
                write_parts(b"{}", parts, enough, out);
            }
            Datum::Object(Object(Repr::Raw(stored))) => {
                let text = layout::text_of(stored);
                let mut end = enough.min(text.len());
                // Do not cut a character in two.
                while text.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    end -= 1;
                }
                out.extend_from_slice(&text[..end]);
            }
            Datum::Geometry(shape) => {
                Datum::Object(Object::from_sorted(shape_members(shape))).write_beginning(enough, out);
            }
            other => other.write_json(out),
        }
    }

    /// The `minval` or `maxval` inside this value, if any: a value that contains one has no JSON.
    #[must_use]
    pub fn not_json(&self) -> Option<Kind> {
        match self {
            Datum::MinVal | Datum::MaxVal => Some(self.kind()),
            Datum::Array(items) if !cancel::may_continue(items.len()) => None,
            Datum::Array(items) => deep::level(|| items.iter().find_map(Datum::not_json)),
            Datum::Object(object) | Datum::Geometry(object) => match &object.0 {
                Repr::Tree(tree) if !cancel::may_continue(tree.0.len()) => None,
                Repr::Tree(tree) => deep::level(|| tree.0.iter().find_map(|m| m.1.not_json())),
                Repr::Raw(_) => None,
            },
            _ => None,
        }
    }
}

impl Object {
    /// Appends the compact JSON text. For a stored object this copies its text.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Repr::Tree(tree) => deep::level(|| write_members(tree, out)),
            Repr::Raw(stored) => out.extend_from_slice(layout::text_of(stored)),
        }
    }
}

impl std::fmt::Debug for Datum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_json_string())
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = Vec::new();
        self.write_json(&mut out);
        f.write_str(&into_string(out))
    }
}

/// The longest prefix of `text` of at most `bytes_max` bytes that does not cut a character in two.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn into_string(text: Vec<u8>) -> String {
    match String::from_utf8(text) {
        Ok(text) => text,
        Err(damaged) => String::from_utf8_lossy(damaged.as_bytes()).into_owned(),
    }
}

fn write_array(items: &[Datum], out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        item.write_json(out);
    }
    out.push(b']');
}

/// Writes items, or members with their keys, within brackets, as far as [`Datum::write_beginning`] needs them.
fn write_parts<'a>(
    brackets: &[u8; 2],
    parts: impl Iterator<Item = (Option<&'a str>, &'a Datum)>,
    enough: usize,
    out: &mut Vec<u8>,
) {
    out.push(brackets[0]);
    for (i, (key, value)) in parts.enumerate() {
        if out.len() > enough {
            break;
        }
        if i > 0 {
            out.push(b',');
        }
        if let Some(key) = key {
            escape::write_string(cut(key, enough), out);
            out.push(b':');
        }
        value.write_beginning(enough, out);
    }
    out.push(brackets[1]);
}

fn write_members(members: &Members, out: &mut Vec<u8>) {
    out.push(b'{');
    for (i, (key, value)) in members.0.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_member(key, value, out);
    }
    out.push(b'}');
}

/// Appends `"key":value`.
pub(crate) fn write_member(key: &str, value: &Datum, out: &mut Vec<u8>) {
    escape::write_string(key, out);
    out.push(b':');
    value.write_json(out);
}

fn write_binary(bytes: &Bytes, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"$reql_type$":"BINARY","data":""#);
    binary::write_base64(bytes, out);
    out.extend_from_slice(br#""}"#);
}

fn write_time(time: Time, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"$reql_type$":"TIME","epoch_time":"#);
    number::write_number(time.epoch_seconds, out);
    out.extend_from_slice(br#","timezone":""#);
    out.extend_from_slice(time.offset_text().as_bytes());
    out.extend_from_slice(br#""}"#);
}

fn write_geometry(shape: &Object, out: &mut Vec<u8>) {
    write_members(&Members(shape_members(shape)), out);
}

/// The members of a geometry, with `$reql_type$` at its sorted position.
pub(crate) fn shape_members(shape: &Object) -> Vec<(Text, Datum)> {
    let mut members = match &shape.0 {
        Repr::Tree(tree) => tree.0.clone(),
        // Geometries are always read out of their stored text.
        Repr::Raw(_) => Vec::new(),
    };
    let at = members.partition_point(|(key, _)| &**key < TYPE_KEY);
    let name = Datum::String(Text::from_static("GEOMETRY"));
    members.insert(at, (Text::from_static(TYPE_KEY), name));
    members
}

/// The beginning of a binary in compact JSON text. No other value begins with it.
const BINARY_START: &[u8] = br#"{"$reql_type$":"BINARY","data":""#;

/// Indents compact JSON text. A binary stays compact, without white space before it, as in RethinkDB. Stops once more than `enough`
/// bytes are written.
fn indent(compact: &[u8], enough: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    let is_binary = |at: usize| compact[at..].starts_with(BINARY_START);
    while let (Some(&byte), true) = (compact.get(at), out.len() <= enough) {
        if is_binary(at) {
            let end = string_end(compact, at + BINARY_START.len());
            let end = compact.len().min(end + b"}".len());
            out.extend_from_slice(&compact[at..end]);
            at = end;
            continue;
        }
        at += 1;
        let next_is_binary = is_binary(at);
        match byte {
            b'"' => {
                let end = string_end(compact, at);
                out.push(b'"');
                out.extend_from_slice(&compact[at..end]);
                at = end;
            }
            b'{' | b'[' if matches!(compact.get(at), Some(b'}' | b']')) => {
                out.extend_from_slice(&[byte, compact[at]]);
                at += 1;
            }
            b'{' | b'[' => {
                depth += 1;
                out.push(byte);
                if !next_is_binary {
                    new_line(depth, &mut out);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(depth, &mut out);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                if !next_is_binary {
                    new_line(depth, &mut out);
                }
            }
            b':' if next_is_binary => out.push(byte),
            b':' => out.extend_from_slice(b":\t"),
            _ => out.push(byte),
        }
    }
    out
}

fn new_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.resize(out.len() + depth.min(TABS_MAX), b'\t');
}

/// Position after the closing quote of the string whose content begins at `from`.
pub(crate) fn string_end(json: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        at = escape::plain_end(json, at);
        match json.get(at) {
            None => return json.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at = (at + 2).min(json.len()),
            Some(_) => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(members: Vec<(&str, Datum)>) -> Datum {
        let members = members.into_iter().map(|(k, v)| (Text::from(k), v)).collect();
        Datum::Object(Object::from_sorted(members))
    }

    #[test]
    fn values_print_compact_with_pseudotypes_as_objects() {
        let shape = match object(vec![("!", Datum::Null), ("type", Datum::from("Point"))]) {
            Datum::Object(shape) => shape,
            _ => unreachable!(),
        };
        let value = Datum::from(vec![
            Datum::Null,
            object(vec![("a\n", Datum::from(1)), ("b", Datum::Bool(true))]),
            Datum::Binary(Bytes::from_static(b"foo")),
            Datum::Time(Time::new(1.5, -420)),
            Datum::Geometry(shape),
        ]);
        let expected = concat!(
            r#"[null,{"a\n":1,"b":true},{"$reql_type$":"BINARY","data":"Zm9v"},"#,
            r#"{"$reql_type$":"TIME","epoch_time":1.5,"timezone":"-07:00"},"#,
            r#"{"!":null,"$reql_type$":"GEOMETRY","type":"Point"}]"#,
        );
        assert_eq!(value.to_json_string(), expected);
    }

    #[test]
    fn messages_show_one_member_per_line() {
        let inner = object(vec![("c", Datum::empty_array()), ("d", object(vec![]))]);
        let items = Datum::from(vec![Datum::from(1), Datum::from("x,{\"")]);
        let value = object(vec![("a", items), ("b", inner)]);
        let expected = "{\n\t\"a\":\t[\n\t\t1,\n\t\t\"x,{\\\"\"\n\t],\n\t\"b\":\t{\n\t\t\"c\":\t[],\n\t\t\"d\":\t{}\n\t}\n}";
        assert_eq!(value.pretty(), expected);
        assert_eq!(Datum::from("a").pretty(), "\"a\"");
    }

    #[test]
    fn messages_show_binaries_compact() {
        let binary = || Datum::Binary(Bytes::from_static(b"\x00\xff"));
        let items = Datum::from(vec![binary(), Datum::from(1), binary()]);
        let value = object(vec![("a", binary()), ("b", items), ("c", object(vec![("d", binary())]))]);
        let bytes = r#"{"$reql_type$":"BINARY","data":"AP8="}"#;
        let expected = format!(
            "{{\n\t\"a\":{bytes},\n\t\"b\":\t[{bytes},\n\t\t1,{bytes}\n\t],\n\t\"c\":\t{{\n\t\t\"d\":{bytes}\n\t}}\n}}"
        );
        assert_eq!(value.pretty(), expected);
        assert_eq!(binary().pretty(), bytes);
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let short = Datum::from("x".repeat(298));
        assert_eq!(short.truncated().len(), 300);
        let long = Datum::from("é".repeat(200)).truncated();
        assert!(long.len() <= 300 && long.ends_with("é..."), "{long}");
    }

    #[test]
    fn the_beginning_of_a_long_value_is_as_in_its_whole_text() {
        let inner =
            object(vec![("c", Datum::from("é\"".repeat(90))), ("d", Datum::from(vec![Datum::Null; 90]))]);
        let stored = crate::json::parse(inner.to_json_string().as_bytes()).expect("JSON");
        let bytes = Datum::Binary(Bytes::from(vec![7; 900]));
        for value in [inner.clone(), stored, Datum::from(vec![inner; 3]), bytes] {
            let whole = value.pretty();
            assert_eq!(value.truncated(), format!("{}...", cut(&whole, TRUNCATED_BYTES - 3)));
        }
    }

    #[test]
    fn an_enormous_value_is_shown_truncated() {
        let shared = (0..60).fold(Datum::Null, |value, _| Datum::from(vec![value.clone(), value]));
        let text = shared.pretty();
        assert!(
            text.len() <= TRUNCATED_BYTES && text.starts_with("[\n\t[") && text.ends_with("..."),
            "{text}"
        );
    }

    #[test]
    fn bounds_are_found_wherever_they_are() {
        let value = object(vec![("a", Datum::from(vec![Datum::Null, Datum::MaxVal]))]);
        assert_eq!(value.not_json(), Some(Kind::MaxVal));
        assert_eq!(Datum::from(vec![Datum::Null]).not_json(), None);
    }
}
