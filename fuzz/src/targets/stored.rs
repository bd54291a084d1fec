//! What must hold for an object that came from anywhere: used by the targets of rows and JSON.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use datum::{Datum, Object, row};

/// Looks into `object` in every way there is. `sound`: it was made by us, so that all ways must
/// agree; otherwise they need only end.
pub fn look_into(object: &Object, sound: bool) {
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
        let decoded = row::decode(again.clone().into()).expect("what was just encoded decodes");
        assert_eq!(row::encode(&decoded), again);
        assert_eq!(row::encode(&tree), again, "one value has one row");
    }
}
