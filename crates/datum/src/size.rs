//! How large a value is: about how long its JSON, how long its longest array.

use crate::layout;
use crate::value::Repr;
use crate::{Datum, Object, deep};

/// Bytes of a number, a time's fields, the punctuation of a member: enough for an estimate.
const SCALAR_BYTES: usize = 8;
const PSEUDOTYPE_BYTES: usize = 64;

impl Datum {
    /// About how many bytes [`Datum::write_json`] appends. Costs nothing for what is still stored
    /// text and a visit to each part for anything else. For cutting batches, not for exact lengths.
    #[must_use]
    pub fn json_size(&self) -> usize {
        match self {
            Datum::String(text) => text.len() + 2,
            Datum::Array(items) => {
                deep::level(|| items.iter().map(|item| item.json_size() + 1).sum::<usize>() + 2)
            }
            Datum::Object(object) => object.json_size(),
            Datum::Geometry(shape) => shape.json_size() + PSEUDOTYPE_BYTES,
            Datum::Binary(bytes) => bytes.len() / 3 * 4 + PSEUDOTYPE_BYTES,
            Datum::Time(_) => PSEUDOTYPE_BYTES,
            _ => SCALAR_BYTES,
        }
    }
}

impl Datum {
    /// Whether its JSON text may have at most `bytes`. True when in doubt: numbers count for one
    /// byte and nothing is escaped. Stops as soon as the bytes are used up, however large it is.
    #[must_use]
    pub fn json_may_fit(&self, bytes: usize) -> bool {
        self.take_room(bytes).is_some()
    }

    /// What is left of `room` after this value.
    fn take_room(&self, room: usize) -> Option<usize> {
        match self {
            Datum::String(text) => room.checked_sub(text.len() + 2),
            Datum::Array(items) => deep::level(|| {
                let left = room.checked_sub(items.len() + 1)?;
                items.iter().try_fold(left, |left, item| item.take_room(left))
            }),
            Datum::Object(object) | Datum::Geometry(object) => match &object.0 {
                Repr::Raw(stored) => room.checked_sub(layout::text_of(stored).len()),
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
    /// The number of items of the longest array anywhere in it, without looking into stored text.
    #[must_use]
    pub fn longest_array(&self) -> usize {
        match self {
            Datum::Array(items) => {
                let within = || items.iter().map(Datum::longest_array).max().unwrap_or(0);
                deep::level(within).max(items.len())
            }
            Datum::Object(object) | Datum::Geometry(object) => match &object.0 {
                Repr::Raw(_) => 0,
                Repr::Tree(tree) => {
                    deep::level(|| tree.0.iter().map(|(_, value)| value.longest_array()).max().unwrap_or(0))
                }
            },
            _ => 0,
        }
    }
}

impl Object {
    /// [`Datum::json_size`] of an object.
    #[must_use]
    pub fn json_size(&self) -> usize {
        match &self.0 {
            Repr::Raw(stored) => layout::text_of(stored).len(),
            Repr::Tree(tree) => deep::level(|| {
                let members = tree.0.iter().map(|(key, value)| key.len() + 4 + value.json_size());
                members.sum::<usize>() + 2
            }),
        }
    }
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
    }

    #[test]
    fn the_longest_array_is_found_at_any_depth() {
        let inner = Datum::from(vec![Datum::Null; 7]);
        let value = Datum::from(vec![inner, Datum::from("x")]);
        assert_eq!(value.longest_array(), 7);
        assert_eq!(Datum::Null.longest_array(), 0);
    }
}
