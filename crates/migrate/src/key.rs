//! Primary keys, in the order in which tables have them, and the bounds of ranges of them.

use datum::{PrimaryKey, json};

/// A key that a client cannot read: no server of the protocol stores such a one.
#[derive(Debug, thiserror::Error)]
#[error("{text} is not a primary key")]
pub struct BadKey {
    /// The key's JSON.
    pub text: String,
}

/// A primary key. Ordered as `order_by` on the primary key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(PrimaryKey);

impl Key {
    /// The key with this JSON. Fails if that is no value of a key.
    pub fn parse(text: &str) -> Result<Key, BadKey> {
        let bad = || BadKey { text: text.to_owned() };
        let value = json::parse(text.as_bytes()).map_err(|_| bad())?;
        PrimaryKey::encode(&value).map(Key).map_err(|_| bad())
    }

    pub fn to_json(&self) -> String {
        self.0.decode().to_json_string()
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// A place between keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bound {
    /// Before all keys.
    Min,
    /// Directly after a key, whether or not a row has it.
    After(Key),
    /// After all keys.
    Max,
}

impl Bound {
    /// Whether `key` lies before this place.
    pub fn is_after(&self, key: &Key) -> bool {
        match self {
            Bound::Min => false,
            Bound::After(own) => own >= key,
            Bound::Max => true,
        }
    }
}

/// The keys after `start` up to `end`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    pub start: Bound,
    pub end: Bound,
}

impl KeyRange {
    /// All keys of a table.
    pub fn all() -> KeyRange {
        KeyRange { start: Bound::Min, end: Bound::Max }
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.end.is_after(key) && !self.start.is_after(key)
    }

    /// The part up to `end`.
    pub fn until(&self, end: Bound) -> KeyRange {
        KeyRange { start: self.start.clone(), end }
    }
}

impl std::fmt::Display for KeyRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.start {
            Bound::After(key) => write!(f, "keys after {key}")?,
            _ => f.write_str("keys")?,
        }
        match &self.end {
            Bound::After(key) => write!(f, " up to {key}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Key, KeyRange};

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    #[test]
    fn keys_are_ordered_as_their_values() {
        let texts = [
            "[1,\"a\"]",
            "[2]",
            "false",
            "true",
            "-5",
            "0",
            "1e300",
            r#"{"$reql_type$":"TIME","epoch_time":1,"timezone":"+00:00"}"#,
            "\"a\"",
            "\"b\"",
        ];
        let keys: Vec<Key> = texts.iter().map(|text| key(text)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for (text, key) in texts.iter().zip(&keys) {
            assert_eq!(Key::parse(&key.to_json()).unwrap(), *key, "{text}");
        }
        assert!(Key::parse("null").is_err() && Key::parse("{}").is_err() && Key::parse("1 2").is_err());
    }

    #[test]
    fn a_range_has_its_end_and_not_its_start() {
        let range = KeyRange { start: Bound::After(key("1")), end: Bound::After(key("3")) };
        assert_eq!([1, 2, 3, 4].map(|n| range.contains(&key(&n.to_string()))), [false, true, true, false]);
        assert!(KeyRange::all().contains(&key("[]")) && KeyRange::all().contains(&key("\"z\"")));
        assert!(Bound::Min < Bound::After(key("[]")) && Bound::After(key("\"z\"")) < Bound::Max);
    }
}
