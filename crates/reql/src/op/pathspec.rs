//! Path specs: select parts of an object for `pluck`, `without`, `has_fields` and `with_fields`.
//!
//! A string names a field, an array is the union of its elements, and an object `{field: spec}` descends: `{field:
//! true}` is the field itself. Source: docs/reql-spec.md section 3, "Pathspecs".

use std::sync::Arc;

use datum::{Datum, Object, ObjectBuilder, Text, pseudo};

use crate::EvalError;
use crate::args::Args;
use crate::deep;
use crate::env::Cancel;
use crate::walk::Walk;

/// A selection of parts of an object. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PathSpec(Arc<Node>);

#[derive(Debug)]
enum Node {
    Field(Text),
    /// Every part that one of these selects.
    Union(Vec<PathSpec>),
    /// Parts of the values of fields.
    Inside(Vec<(Text, PathSpec)>),
}

/// Whether a walk may descend from an array into its elements, which it does for one level at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrays {
    Enter,
    Refuse,
}

impl PathSpec {
    /// The union of the arguments from `first` on.
    pub fn of_args(args: &Args<'_>, first: usize) -> Result<PathSpec, EvalError> {
        let count = args.len().saturating_sub(first);
        // The array limit is checked before anything else. Source: terms/obj_or_seq.cc of RethinkDB.
        args.env.check_array(count)?;
        let mut specs = Vec::with_capacity(count);
        for i in first..args.len() {
            specs.push(PathSpec::of(args.datum(i)?, args.env.cancel)?);
        }
        match specs.pop() {
            Some(only) if specs.is_empty() => Ok(only),
            last => {
                specs.extend(last);
                Ok(PathSpec::union(specs))
            }
        }
    }

    /// Accepts a string, an object, or an array of path specs; fails for other values and when cancelled.
    pub fn of(value: &Datum, cancel: &Cancel) -> Result<PathSpec, EvalError> {
        match value {
            Datum::String(field) => Ok(PathSpec::field(field.clone())),
            Datum::Array(specs) => {
                cancel.check()?;
                let of = |spec| PathSpec::of(spec, cancel);
                deep::level(|| specs.iter().map(of).collect::<Result<_, _>>().map(PathSpec::union))
            }
            Datum::Object(members) => {
                cancel.check()?;
                deep::level(|| Self::inside(&members.to_tree(), cancel))
            }
            Datum::Time(_) | Datum::Geometry(_) => match pseudo::to_object(value) {
                Some(members) => Self::inside(&members, cancel),
                None => Err(invalid(value)),
            },
            other => Err(invalid(other)),
        }
    }

    /// Inverse of [`PathSpec::of`].
    #[must_use]
    pub fn to_datum(&self) -> Datum {
        match &*self.0 {
            Node::Field(field) => Datum::String(field.clone()),
            Node::Union(specs) => {
                deep::level(|| specs.iter().map(PathSpec::to_datum).collect::<Vec<_>>().into())
            }
            Node::Inside(members) => {
                let member = |(field, spec): &(Text, PathSpec)| (field.clone(), spec.to_datum());
                Datum::Object(deep::level(|| members.iter().map(member).collect()))
            }
        }
    }

    fn inside(members: &Object, cancel: &Cancel) -> Result<PathSpec, EvalError> {
        let mut specs = Vec::with_capacity(members.len());
        for (field, value) in members.iter() {
            let spec = match value {
                Datum::Bool(true) => None,
                other => Some(PathSpec::of(&other, cancel)?),
            };
            specs.push((field, spec));
        }
        // `true` selects the field itself, like a string beside the object.
        let (whole, inside): (Vec<_>, Vec<_>) = specs.into_iter().partition(|(_, s)| s.is_none());
        let inside = inside.into_iter().filter_map(|(field, spec)| Some((field, spec?))).collect();
        let inside = PathSpec(Arc::new(Node::Inside(inside)));
        if whole.is_empty() {
            return Ok(inside);
        }
        let mut all: Vec<_> = whole.into_iter().map(|(field, _)| PathSpec::field(field)).collect();
        all.push(inside);
        Ok(PathSpec::union(all))
    }

    fn field(field: Text) -> PathSpec {
        PathSpec(Arc::new(Node::Field(field)))
    }

    fn union(specs: Vec<PathSpec>) -> PathSpec {
        PathSpec(Arc::new(Node::Union(specs)))
    }

    /// Keeps only the selected parts of `object`. Of two adjacent specs that select parts of the same field, the
    /// later one wins. Source: `project` in pathspec.cc of RethinkDB 2.4.
    pub fn pluck(&self, object: &Object, cancel: &Cancel) -> Result<Object, EvalError> {
        self.pluck_at(object, Walk::until(cancel))
    }

    fn pluck_at(&self, object: &Object, walk: Walk<'_>) -> Result<Object, EvalError> {
        let mut kept = ObjectBuilder::new();
        self.pluck_into(&walk.read(object), &mut kept, walk)?;
        Ok(kept.build())
    }

    /// Removes the selected parts of `object`.
    pub fn without(&self, object: &Object, cancel: &Cancel) -> Result<Object, EvalError> {
        self.without_at(object, Walk::until(cancel))
    }

    fn without_at(&self, object: &Object, walk: Walk<'_>) -> Result<Object, EvalError> {
        let object = walk.read(object);
        let mut changes = Vec::new();
        self.remove_from(&object, &mut changes, walk)?;
        Ok(object.with_changes(changes))
    }

    /// Whether `object` has every selected part with a value other than null.
    pub fn is_in(&self, object: &Object, cancel: &Cancel) -> Result<bool, EvalError> {
        self.is_in_at(object, Walk::until(cancel))
    }

    fn is_in_at(&self, object: &Object, walk: Walk<'_>) -> Result<bool, EvalError> {
        let object = &*walk.read(object);
        match &*self.0 {
            Node::Field(field) => Ok(object.get(field).is_some_and(|v| !matches!(v, Datum::Null))),
            Node::Union(specs) => deep::level(|| all(specs, |spec| spec.is_in_at(object, walk))),
            Node::Inside(members) => all(members, |(field, spec)| {
                let walk = walk.deeper()?;
                deep::level(|| match object.get(field) {
                    Some(Datum::Object(inner)) => spec.is_in_at(&inner, walk),
                    Some(value @ (Datum::Time(_) | Datum::Geometry(_))) => {
                        pseudo::to_object(&value).map_or(Ok(false), |inner| spec.is_in_at(&inner, walk))
                    }
                    // A value without fields satisfies an empty selection.
                    Some(_) => Ok(spec.is_empty()),
                    None => Ok(false),
                })
            }),
        }
    }

    /// Whether nothing is selected.
    fn is_empty(&self) -> bool {
        match &*self.0 {
            Node::Field(_) => false,
            Node::Union(specs) => specs.iter().all(PathSpec::is_empty),
            Node::Inside(members) => members.is_empty(),
        }
    }

    fn pluck_into(&self, object: &Object, kept: &mut ObjectBuilder, walk: Walk<'_>) -> Result<(), EvalError> {
        match &*self.0 {
            Node::Field(field) => {
                if let Some(value) = object.get(field) {
                    kept.insert(field.clone(), value);
                }
            }
            Node::Union(specs) => {
                return deep::level(|| specs.iter().try_for_each(|spec| spec.pluck_into(object, kept, walk)));
            }
            Node::Inside(members) => {
                for (field, spec) in members {
                    let Some(value) = object.get(field) else { continue };
                    let part = |inner: Option<&Object>| match (walk.deeper()?, inner) {
                        // Each field is treated as a plain object first, even if it claims to be a time.
                        (walk, Some(inner)) => spec
                            .pluck_at(inner, walk)
                            .map(|part| Some(part).filter(|part| !part.contains_key(pseudo::KEY))),
                        // An empty selection does not look at fields.
                        (_, None) => Ok(spec.is_empty().then(Object::default)),
                    };
                    if let Some(part) = deep::level(|| part_of(&value, Arrays::Enter, &part))? {
                        kept.insert(field.clone(), part);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the changes that this spec requires in `object` to `changes`.
    fn remove_from(&self, object: &Object, changes: &mut Changes, walk: Walk<'_>) -> Result<(), EvalError> {
        match &*self.0 {
            Node::Field(field) => changes.push((field.clone(), None)),
            Node::Union(specs) => {
                return deep::level(|| {
                    specs.iter().try_for_each(|spec| spec.remove_from(object, changes, walk))
                });
            }
            Node::Inside(members) => {
                for (field, spec) in members {
                    let changed = changes.iter().rfind(|(known, _)| known == field);
                    let value = match changed {
                        Some((_, value)) => value.clone(),
                        None => object.get(field),
                    };
                    let Some(value) = value else { continue };
                    let part = |inner: Option<&Object>| {
                        let walk = walk.deeper()?;
                        inner.map(|inner| spec.without_at(inner, walk)).transpose()
                    };
                    if let Some(part) = deep::level(|| part_of(&value, Arrays::Enter, &part))? {
                        changes.push((field.clone(), Some(part)));
                    }
                }
            }
        }
        Ok(())
    }
}

/// New values of members of an object; `None` removes the member.
type Changes = Vec<(Text, Option<Datum>)>;

/// Computes a part of an object, or of a value without members; may return nothing.
type PartFn<'a> = &'a dyn Fn(Option<&Object>) -> Result<Option<Object>, EvalError>;

/// Applies `part` to a value, or to each item of an array. Returns nothing if an item has no members, or if a time
/// or geometry would become invalid. `part` is called for values without members, too.
fn part_of(value: &Datum, arrays: Arrays, part: PartFn<'_>) -> Result<Option<Datum>, EvalError> {
    match value {
        Datum::Object(object) => Ok(part(Some(object))?.map(Datum::Object)),
        Datum::Time(_) | Datum::Geometry(_) => {
            let part = part(pseudo::to_object(value).as_ref())?;
            Ok(part.and_then(|part| pseudo::from_object(part).ok()))
        }
        Datum::Array(items) if arrays == Arrays::Enter => {
            let mut parts = Vec::with_capacity(items.len());
            for item in items.iter() {
                match part_of(item, Arrays::Refuse, part)? {
                    Some(part) => parts.push(part),
                    None => return Ok(None),
                }
            }
            Ok(Some(Datum::from(parts)))
        }
        _ => Ok(part(None)?.map(Datum::Object)),
    }
}

/// Whether all of `parts` satisfy `holds`. Stops at the first that does not.
fn all<T>(parts: &[T], mut holds: impl FnMut(&T) -> Result<bool, EvalError>) -> Result<bool, EvalError> {
    for part in parts {
        if !holds(part)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Node {
    /// Moves the specs inside this one to `waiting`.
    fn empty_into(&mut self, waiting: &mut Vec<PathSpec>) {
        match self {
            Node::Field(_) => {}
            Node::Union(specs) => waiting.append(specs),
            Node::Inside(members) => waiting.extend(members.drain(..).map(|(_, spec)| spec)),
        }
    }
}

/// A spec may have tens of thousands of levels: its parts are dropped from a list, not by recursion.
impl Drop for Node {
    fn drop(&mut self) {
        let mut waiting = Vec::new();
        self.empty_into(&mut waiting);
        while let Some(PathSpec(node)) = waiting.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                node.empty_into(&mut waiting);
            }
        }
    }
}

fn invalid(value: &Datum) -> EvalError {
    EvalError::logic(format!("Invalid path argument `{}`.", value.truncated()))
}

#[cfg(test)]
mod tests {
    use datum::{Bytes, json, row};

    use super::*;

    static NEVER: Cancel = Cancel::never();

    fn object(text: &str) -> Object {
        match json::parse(text.as_bytes()) {
            Ok(Datum::Object(object)) => object,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn stored_rows_behave_like_objects_in_memory() {
        let text = r#"{"a":1,"b":null,"c":{"d":[{"e":1,"f":2},{"e":3}],"g":"x"},"h":[1,{"e":2}],"i":"é"}"#;
        let stored = row::decode(Bytes::from(row::encode(&object(text)))).expect("a sound row");
        let tree = object(text).to_tree();
        for spec in [
            r#"[]"#,
            r#"["a","b","missing"]"#,
            r#"[{"c":{"d":"e"}},{"c":"g"}]"#,
            r#"[{"c":{"d":{"e":true}},"a":true}]"#,
            r#"[{"h":"e"},{"a":"x"},{"c":["g",{"d":"f"}]}]"#,
        ] {
            let value = json::parse(spec.as_bytes()).expect("a path spec");
            let spec = PathSpec::of(&value, &NEVER).expect("a legal path spec");
            let parts = |object: &Object| {
                let parts = [spec.pluck(object, &NEVER), spec.without(object, &NEVER)];
                (
                    parts.map(|part| part.expect("not stopped")),
                    spec.is_in(object, &NEVER).expect("not stopped"),
                )
            };
            assert_eq!(parts(&stored), parts(&tree), "{value:?}");
        }
    }

    #[test]
    fn a_spec_of_any_depth_is_dropped() {
        let mut value = Datum::from("a");
        for _ in 0..200_000 {
            value = Datum::from(vec![value]);
        }
        drop(PathSpec::of(&value, &NEVER).expect("a legal path spec"));
    }
}
