//! Estimates how large a value is: the length of its JSON and of its longest array.

use crate::layout;
use crate::print::string_end;
use crate::value::Repr;
use crate::{Datum, Object, cancel, deep};

/// Estimated bytes of a number, a bool or null.
const SCALAR_BYTES: usize = 8;
const PSEUDOTYPE_BYTES: usize = 64;

impl Datum {
    /// Approximate number of bytes that [`Datum::write_json`] appends. Free for stored text; visits each part of
    /// other values. For cutting batches, not for exact lengths.
    #[must_use]
    pub fn json_size(&self) -> usize {
        self.json_size_to(usize::MAX)
    }

    /// Like [`Datum::json_size`], but stops once the size reaches `enough`: the value may be enormous.
    #[must_use]
    pub fn json_size_to(&self, enough: usize) -> usize {
        match self {
            Datum::String(text) => text.len() + 2,
            Datum::Array(items) => sum_to(enough, items.len(), items.iter().map(|item| (1, item))),
            Datum::Object(object) => object_size_to(object, enough),
            Datum::Geometry(shape) => object_size_to(shape, enough) + PSEUDOTYPE_BYTES,
            Datum::Binary(bytes) => bytes.len() / 3 * 4 + PSEUDOTYPE_BYTES,
            Datum::Time(_) => PSEUDOTYPE_BYTES,
            _ => SCALAR_BYTES,
        }
    }
}

/// [`Datum::json_size_to`] of an object.
pub(crate) fn object_size_to(object: &Object, enough: usize) -> usize {
    match &object.0 {
        Repr::Raw(stored) => layout::text_of(stored).len(),
        Repr::Tree(tree) => {
            sum_to(enough, tree.0.len(), tree.0.iter().map(|(key, value)| (key.len() + 4, value)))
        }
    }
}

/// Adds up the sizes of `count` parts, each with the punctuation around it. Stops at `enough`.
fn sum_to<'a>(enough: usize, count: usize, parts: impl Iterator<Item = (usize, &'a Datum)>) -> usize {
    let mut sum = 2;
    if cancel::may_continue(count) {
        deep::level(|| {
            for (around, part) in parts {
                if sum >= enough {
                    break;
                }
                sum += around + part.json_size_to(enough - sum);
            }
        });
    }
    sum
}

impl Datum {
    /// Whether the JSON text may fit into `bytes`. An optimistic estimate: numbers count as one byte and nothing is
    /// escaped. Stops as soon as the bytes are used up, however large the value is.
    #[must_use]
    pub fn json_may_fit(&self, bytes: usize) -> bool {
        self.take_room(bytes).is_some()
    }

    /// The bytes of `room` that remain after this value.
    fn take_room(&self, room: usize) -> Option<usize> {
        match self {
            Datum::String(text) => room.checked_sub(text.len() + 2),
            Datum::Array(items) if !cancel::may_continue(items.len()) => None,
            Datum::Array(items) => deep::level(|| {
                let left = room.checked_sub(items.len() + 1)?;
                items.iter().try_fold(left, |left, item| item.take_room(left))
            }),
            Datum::Object(object) | Datum::Geometry(object) => match &object.0 {
                Repr::Raw(stored) => room.checked_sub(layout::text_of(stored).len()),
                Repr::Tree(tree) if !cancel::may_continue(tree.0.len()) => None,
                Repr::Tree(tree) => deep::level(|| {
                    tree.0.iter().try_fold(room, |left, (key, value)| {
                        value.take_room(left.checked_sub(key.len() + 4)?)
                    })
                }),
            },
            Datum::Binary(bytes) => room.checked_sub(bytes.len() / 3 * 4),
            _ => room.checked_sub(1),
        }
    }
}

impl Datum {
    /// Whether the value contains an array of more than `items_max` items at any depth. `items_max` is at least 1.
    ///
    /// Visits each part of a tree. Stored text is scanned only if it is long enough for such an array.
    #[must_use]
    pub fn has_longer_array(&self, items_max: usize) -> bool {
        match self {
            Datum::Array(items) => {
                items.len() > items_max
                    || cancel::may_continue(items.len())
                        && deep::level(|| items.iter().any(|item| item.has_longer_array(items_max)))
            }
            Datum::Object(object) | Datum::Geometry(object) => match &object.0 {
                Repr::Raw(stored) => text_has_longer_array(layout::text_of(stored), items_max),
                Repr::Tree(tree) => {
                    cancel::may_continue(tree.0.len())
                        && deep::level(|| tree.0.iter().any(|(_, value)| value.has_longer_array(items_max)))
                }
            },
            _ => false,
        }
    }
}

/// [`Datum::has_longer_array`] of canonical text.
fn text_has_longer_array(text: &[u8], items_max: usize) -> bool {
    // Each item takes at least two bytes, including the comma or bracket after it.
    if text.len() / 2 <= items_max {
        return false;
    }
    // For each open container, the number of commas seen in it so far.
    let mut before = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at),
            b'[' | b'{' => before.push((byte, 0_usize)),
            b']' | b'}' => {
                before.pop();
            }
            b',' => {
                let Some((opened, count)) = before.last_mut() else { return false };
                *count += 1;
                if *opened == b'[' && *count >= items_max {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::{Datum, json};

    #[test]
    fn the_size_is_near_the_length_of_the_text() {
        for text in [r#"{"a":[1,2,3],"b":{"c":"some text that is longer"}}"#, "[]", "null", "\"x\""] {
            let value = json::parse(text.as_bytes()).expect("JSON");
            let (size, len) = (value.json_size(), value.to_json_string().len());
            assert!(size >= len / 2 && size <= len * 4 + 8, "{text}: {size} for {len}");
        }
    }

    #[test]
    fn the_room_for_json_is_never_too_small_and_the_walk_stops() {
        for text in [r#"{"a":[1,2,3],"b":{"c":"text"}}"#, "[]", "{}", "null", "\"x\"", "[[],[1]]"] {
            let value = json::parse(text.as_bytes()).expect("JSON");
            assert!(value.json_may_fit(text.len()), "{text}");
        }
        assert!(!Datum::from("four").json_may_fit(5));
        // Two to the power of 60 leaves.
        let shared = (0..60).fold(Datum::Null, |value, _| Datum::from(vec![value.clone(), value]));
        assert!(!shared.json_may_fit(1 << 16));
        let size = shared.json_size_to(1 << 16);
        assert!((1 << 16..1 << 17).contains(&size), "{size}");
    }

    #[test]
    fn a_longer_array_is_found_at_any_depth() {
        let inner = Datum::from(vec![Datum::Null; 7]);
        let value = Datum::from(vec![inner, Datum::from("x")]);
        assert!(value.has_longer_array(6) && !value.has_longer_array(7));
        assert!(!Datum::Null.has_longer_array(0));
    }

    #[test]
    fn a_longer_array_is_found_in_stored_text() {
        let filler = "x".repeat(128);
        let text = format!(r#"{{"a":[[],{{"b":[1,"],[",{{"c":1,"d":2,"e":3,"f":4}},4]}}],"z":"{filler}"}}"#);
        let Ok(Datum::Object(row)) = json::parse(text.as_bytes()) else { panic!("no object") };
        assert!(row.text_bytes().is_some(), "a tree");
        let value = Datum::Object(row);
        assert!(value.has_longer_array(3) && !value.has_longer_array(4));
        let short = json::parse(br#"{"a":[1,2,3,4,5]}"#).expect("JSON");
        assert!(short.has_longer_array(4) && !short.has_longer_array(5));
    }
}
