//! Reads, changes, iterates over and builds objects.

use std::collections::BTreeMap;

use crate::layout::{self, Layout};
use crate::value::Repr;
use crate::{Bytes, Datum, Object, Text, deep, raw, reader, size, splice};

impl Object {
    /// The value under `key`.
    ///
    /// A stored object is searched in its text: through the table at the top level of a row, member by member
    /// inside it.
    #[must_use]
    #[inline]
    pub fn get(&self, key: &str) -> Option<Datum> {
        match &self.0 {
            Repr::Tree(tree) => Some(tree.find(key)?.clone()),
            Repr::Raw(stored) => raw::find(stored, key).map(|at| raw::value(stored, at)),
        }
    }

    /// Whether there is a member under `key`.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        match &self.0 {
            Repr::Tree(tree) => tree.find(key).is_some(),
            Repr::Raw(stored) => raw::find(stored, key).is_some(),
        }
    }

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Tree(tree) => tree.0.len(),
            Repr::Raw(row) if layout::is_row(row) => Layout::of(row).map_or(0, |layout| layout.count),
            Repr::Raw(text) => raw::Members::of(text).count(),
        }
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Repr::Tree(tree) => tree.0.is_empty(),
            Repr::Raw(stored) => raw::Members::of(stored).next().is_none(),
        }
    }

    /// The members in byte order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (Text, Datum)> + '_ {
        match &self.0 {
            Repr::Tree(tree) => Iter::Tree(tree.0.iter()),
            Repr::Raw(stored) => Iter::Raw(stored, raw::Members::of(stored)),
        }
    }

    /// The keys in byte order.
    pub fn keys(&self) -> impl Iterator<Item = Text> + '_ {
        match &self.0 {
            Repr::Tree(tree) => Keys::Tree(tree.0.iter()),
            Repr::Raw(stored) => Keys::Raw(stored, raw::Members::of(stored)),
        }
    }

    /// The same object with all values read out of the stored text.
    #[must_use]
    pub fn to_tree(&self) -> Object {
        let Repr::Raw(stored) = &self.0 else { return self.clone() };
        let text = Text::try_from(stored.slice(layout::text_range(stored))).ok();
        match text.and_then(|text| reader::read_shared(&text, &|| true).ok()) {
            Some(Datum::Object(tree)) => tree,
            _ => self.iter().collect(),
        }
    }

    /// A builder that begins with these members.
    #[must_use]
    pub fn to_builder(&self) -> ObjectBuilder {
        match &self.0 {
            Repr::Tree(tree) => ObjectBuilder(Members::Sorted(tree.0.clone())),
            Repr::Raw(_) => self.iter().collect(),
        }
    }

    /// This object with some members replaced or added, or removed if the value is `None`. The last of several
    /// changes to one key wins.
    ///
    /// Changing a stored row gives a stored row, unless the new values are large. Costs work in proportion to the
    /// changes, and one copy.
    #[must_use]
    pub fn with_changes(&self, mut changes: Vec<(Text, Option<Datum>)>) -> Object {
        if !changes.is_sorted_by(|a, b| a.0 < b.0) {
            changes.reverse();
            changes.sort_by(|a, b| a.0.cmp(&b.0));
            changes.dedup_by(|later, earlier| later.0 == earlier.0);
        }
        if let Repr::Raw(row) = &self.0
            && layout::is_row(row)
            && let Some(changed) = splice::splice(row, &changes)
        {
            return changed;
        }
        let mut builder = self.to_builder();
        for (key, value) in changes {
            match value {
                Some(value) => builder.insert(key, value),
                None => builder.remove(&key),
            };
        }
        builder.build()
    }

    /// A copy of the object that shares no memory with other values. See [`Datum::detach`].
    #[must_use]
    pub fn detach(&self) -> Object {
        match &self.0 {
            Repr::Raw(stored) => Object(Repr::Raw(Bytes::copy_from_slice(stored))),
            Repr::Tree(tree) => deep::level(|| {
                let members = tree.0.iter().map(|(key, value)| (Text::from(&**key), value.detach()));
                Object::from_sorted(members.collect())
            }),
        }
    }

    /// [`Datum::json_size`] of an object.
    #[must_use]
    pub fn json_size(&self) -> usize {
        size::object_size_to(self, usize::MAX)
    }

    /// The length of the JSON text that holds the object; `None` if it is held as a tree.
    #[must_use]
    pub fn text_bytes(&self) -> Option<usize> {
        self.stored_text().map(<[u8]>::len)
    }

    /// The canonical text of a stored object.
    pub(crate) fn stored_text(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Tree(_) => None,
            Repr::Raw(stored) => Some(layout::text_of(stored)),
        }
    }
}

enum Iter<'a> {
    Tree(std::slice::Iter<'a, (Text, Datum)>),
    Raw(&'a Bytes, raw::Members<'a>),
}

impl Iterator for Iter<'_> {
    type Item = (Text, Datum);

    fn next(&mut self) -> Option<(Text, Datum)> {
        match self {
            Iter::Tree(members) => members.next().cloned(),
            Iter::Raw(stored, members) => {
                let member = members.next()?;
                Some((raw::key(stored, member.key), raw::value(stored, member.value)))
            }
        }
    }
}

enum Keys<'a> {
    Tree(std::slice::Iter<'a, (Text, Datum)>),
    Raw(&'a Bytes, raw::Members<'a>),
}

impl Iterator for Keys<'_> {
    type Item = Text;

    fn next(&mut self) -> Option<Text> {
        match self {
            Keys::Tree(members) => members.next().map(|(key, _)| key.clone()),
            Keys::Raw(stored, members) => Some(raw::key(stored, members.next()?.key)),
        }
    }
}

impl Default for Object {
    fn default() -> Self {
        Object::from_sorted(Vec::new())
    }
}

impl From<ObjectBuilder> for Object {
    fn from(builder: ObjectBuilder) -> Self {
        builder.build()
    }
}

impl FromIterator<(Text, Datum)> for Object {
    /// A later member replaces an earlier one with the same key.
    fn from_iter<I: IntoIterator<Item = (Text, Datum)>>(members: I) -> Self {
        members.into_iter().collect::<ObjectBuilder>().build()
    }
}

/// An object under construction; keys may come in any order.
#[derive(Clone, Debug, Default)]
pub struct ObjectBuilder(Members);

/// Members that arrive out of order are moved into a map once there are this many.
const SORTED_MEMBERS_MAX: usize = 64;

#[derive(Clone, Debug)]
enum Members {
    Sorted(Vec<(Text, Datum)>),
    Map(BTreeMap<Text, Datum>),
}

impl Default for Members {
    fn default() -> Self {
        Members::Sorted(Vec::new())
    }
}

impl ObjectBuilder {
    /// No members yet.
    #[must_use]
    pub fn new() -> ObjectBuilder {
        ObjectBuilder::default()
    }

    /// Puts `value` under `key`. Returns the value it replaces.
    pub fn insert(&mut self, key: Text, value: Datum) -> Option<Datum> {
        let members = match &mut self.0 {
            Members::Sorted(members) => members,
            Members::Map(map) => return map.insert(key, value),
        };
        if members.last().is_none_or(|(last, _)| *last < key) {
            members.push((key, value));
            return None;
        }
        match members.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(found) => Some(std::mem::replace(&mut members[found].1, value)),
            Err(at) if members.len() < SORTED_MEMBERS_MAX => {
                members.insert(at, (key, value));
                None
            }
            Err(_) => {
                let mut map: BTreeMap<_, _> = std::mem::take(members).into_iter().collect();
                map.insert(key, value);
                self.0 = Members::Map(map);
                None
            }
        }
    }

    /// Removes and returns the value under `key`.
    pub fn remove(&mut self, key: &str) -> Option<Datum> {
        match &mut self.0 {
            Members::Sorted(members) => {
                let found = members.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
                Some(members.remove(found).1)
            }
            Members::Map(map) => map.remove(key),
        }
    }

    /// The value under `key` so far.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Datum> {
        match &self.0 {
            Members::Sorted(members) => {
                let found = members.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
                Some(&members[found].1)
            }
            Members::Map(map) => map.get(key),
        }
    }

    /// The number of members so far.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Members::Sorted(members) => members.len(),
            Members::Map(map) => map.len(),
        }
    }

    /// Whether there is no member yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The finished object.
    #[must_use]
    pub fn build(self) -> Object {
        Object::from_sorted(match self.0 {
            Members::Sorted(members) => members,
            Members::Map(map) => map.into_iter().collect(),
        })
    }
}

impl FromIterator<(Text, Datum)> for ObjectBuilder {
    fn from_iter<I: IntoIterator<Item = (Text, Datum)>>(members: I) -> Self {
        let mut builder = ObjectBuilder::new();
        for (key, value) in members {
            builder.insert(key, value);
        }
        builder
    }
}
