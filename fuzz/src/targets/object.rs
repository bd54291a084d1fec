//! Properties of objects from any source; used by the targets of rows and JSON.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use datum::{Datum, Object, row};

/// Reads `object` in every way. If `sound`, it was encoded by our code, and all ways must agree; otherwise they only
/// need to end.
pub fn check_object(object: &Object, sound: bool) {
    let members: Vec<_> = object.iter().take(200).collect();
    let tree = object.to_tree();
    let again = row::encode(object);
    let hashes = BuildHasherDefault::<DefaultHasher>::default();
    let alike = hashes.hash_one(object) == hashes.hash_one(&tree) && *object == tree;
    for (key, value) in &members {
        let found = object.get(key);
        assert!(!sound || found.as_ref() == Some(value), "{key:?} is found by its name");
        let changed = object.with_changes(vec![(key.clone(), None)]);
        assert!(!sound || changed.len() + 1 == object.len(), "{key:?} can be taken out");
        if let Datum::Object(inner) = value {
            inner.iter().take(5).for_each(drop);
        }
    }
    assert!(object.get("\u{0}no such member").is_none() || !sound);
    if sound {
        assert!(alike, "text and tree are equal and hash alike");
        assert!(object.len() >= members.len() && object.is_empty() == members.is_empty());
        let decoded = row::decode(again.clone().into()).expect("an encoded row decodes");
        assert_eq!(row::encode(&decoded), again);
        assert_eq!(row::encode(&tree), again, "one value has one row");
    }
}
