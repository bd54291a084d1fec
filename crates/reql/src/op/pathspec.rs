//! Which parts of an object `pluck`, `without`, `has_fields` and `with_fields` speak of.
//!
//! A string names a field, an array is the union of what it holds, and an object `{field: spec}`
//! descends: `{field: true}` is the field itself. Source: reql reference section 3, "Pathspecs".

use std::sync::Arc;

use datum::{Datum, Object, ObjectBuilder, Text, pseudo};

use crate::EvalError;
use crate::args::Args;
use crate::deep;

/// Parts of an object. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PathSpec(Arc<Node>);

#[derive(Debug)]
enum Node {
    /// One field.
    Field(Text),
    /// Every part that one of these names.
    Union(Vec<PathSpec>),
    /// Parts of the values of fields.
    Inside(Vec<(Text, PathSpec)>),
}

/// Whether a walk may pass from an array to its elements; it does so for one level at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrays {
    Enter,
    Refuse,
}

impl PathSpec {
    /// The union of the arguments from `first` on.
    pub fn of_args(args: &Args<'_>, first: usize) -> Result<PathSpec, EvalError> {
        let count = args.len().saturating_sub(first);
        // They are an array before they are anything else. Source: terms/obj_or_seq.cc of RethinkDB.
        args.env.check_array(count)?;
        let mut specs = Vec::with_capacity(count);
        for i in first..args.len() {
            specs.push(PathSpec::of(args.datum(i)?)?);
        }
        match specs.pop() {
            Some(only) if specs.is_empty() => Ok(only),
            last => {
                specs.extend(last);
                Ok(PathSpec::union(specs))
            }
        }
    }

    /// What `value` names.
    pub fn of(value: &Datum) -> Result<PathSpec, EvalError> {
        match value {
            Datum::String(field) => Ok(PathSpec::field(field.clone())),
            Datum::Array(specs) => {
                deep::level(|| specs.iter().map(PathSpec::of).collect::<Result<_, _>>().map(PathSpec::union))
            }
            Datum::Object(members) => deep::level(|| Self::inside(&members.to_tree())),
            Datum::Time(_) | Datum::Geometry(_) => match pseudo::to_object(value) {
                Some(members) => Self::inside(&members),
                None => Err(invalid(value)),
            },
            other => Err(invalid(other)),
        }
    }

    /// What [`PathSpec::of`] makes this of.
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

    fn inside(members: &Object) -> Result<PathSpec, EvalError> {
        let mut specs = Vec::with_capacity(members.len());
        for (field, value) in members.iter() {
            let spec = match value {
                Datum::Bool(true) => None,
                other => Some(PathSpec::of(&other)?),
            };
            specs.push((field, spec));
        }
        // `true` names the field itself, like a string beside the object.
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

    /// Only the parts of `object` that are named. Of two specs in a row that name parts of one field, the later
    /// decides about it. Source: `project` in pathspec.cc of RethinkDB 2.4.
    #[must_use]
    pub fn pluck(&self, object: &Object) -> Object {
        self.pluck_at(object, 0)
    }

    fn pluck_at(&self, object: &Object, depth: usize) -> Object {
        let mut kept = ObjectBuilder::new();
        self.pluck_into(&deep::read(object, depth), &mut kept, depth);
        kept.build()
    }

    /// `object` without the parts that are named.
    #[must_use]
    pub fn without(&self, object: &Object) -> Object {
        self.without_at(object, 0)
    }

    fn without_at(&self, object: &Object, depth: usize) -> Object {
        let object = deep::read(object, depth);
        let mut changes = Vec::new();
        self.remove_from(&object, &mut changes, depth);
        object.with_changes(changes)
    }

    /// Whether `object` has every part that is named, and not as null.
    #[must_use]
    pub fn is_in(&self, object: &Object) -> bool {
        self.is_in_at(object, 0)
    }

    fn is_in_at(&self, object: &Object, depth: usize) -> bool {
        let object = &*deep::read(object, depth);
        match &*self.0 {
            Node::Field(field) => object.get(field).is_some_and(|v| !matches!(v, Datum::Null)),
            Node::Union(specs) => deep::level(|| specs.iter().all(|spec| spec.is_in_at(object, depth))),
            Node::Inside(members) => members.iter().all(|(field, spec)| {
                deep::level(|| match object.get(field) {
                    Some(Datum::Object(inner)) => spec.is_in_at(&inner, depth + 1),
                    Some(value @ (Datum::Time(_) | Datum::Geometry(_))) => {
                        pseudo::to_object(&value).is_some_and(|inner| spec.is_in(&inner))
                    }
                    // Something without fields has all of no fields.
                    Some(_) => spec.is_empty(),
                    None => false,
                })
            }),
        }
    }

    /// Whether nothing is named.
    fn is_empty(&self) -> bool {
        match &*self.0 {
            Node::Field(_) => false,
            Node::Union(specs) => specs.iter().all(PathSpec::is_empty),
            Node::Inside(members) => members.is_empty(),
        }
    }

    fn pluck_into(&self, object: &Object, kept: &mut ObjectBuilder, depth: usize) {
        match &*self.0 {
            Node::Field(field) => {
                if let Some(value) = object.get(field) {
                    kept.insert(field.clone(), value);
                }
            }
            Node::Union(specs) => deep::level(|| {
                for spec in specs {
                    spec.pluck_into(object, kept, depth);
                }
            }),
            Node::Inside(members) => {
                for (field, spec) in members {
                    let Some(value) = object.get(field) else { continue };
                    let part = |inner: Option<&Object>| match inner {
                        // Each field is an object of its own at first: what says to be a time is none.
                        Some(inner) => Some(spec.pluck_at(inner, depth + 1))
                            .filter(|part| !part.contains_key(pseudo::KEY)),
                        // Nobody looks for a field where nothing is named.
                        None => spec.is_empty().then(Object::default),
                    };
                    if let Some(part) = deep::level(|| part_of(&value, Arrays::Enter, &part)) {
                        kept.insert(field.clone(), part);
                    }
                }
            }
        }
    }

    /// Adds what has to change in `object` to the changes that are known already.
    fn remove_from(&self, object: &Object, changes: &mut Vec<(Text, Option<Datum>)>, depth: usize) {
        match &*self.0 {
            Node::Field(field) => changes.push((field.clone(), None)),
            Node::Union(specs) => deep::level(|| {
                for spec in specs {
                    spec.remove_from(object, changes, depth);
                }
            }),
            Node::Inside(members) => {
                for (field, spec) in members {
                    let changed = changes.iter().rfind(|(known, _)| known == field);
                    let value = match changed {
                        Some((_, value)) => value.clone(),
                        None => object.get(field),
                    };
                    let Some(value) = value else { continue };
                    let part = |inner: Option<&Object>| inner.map(|inner| spec.without_at(inner, depth + 1));
                    if let Some(part) = deep::level(|| part_of(&value, Arrays::Enter, &part)) {
                        changes.push((field.clone(), Some(part)));
                    }
                }
            }
        }
    }
}

/// What `part` makes of a value, or of each item of an array: nothing if one of them has no members, or a time or a
/// shape would lack something of one. `part` is asked about values without members, too.
fn part_of(value: &Datum, arrays: Arrays, part: &dyn Fn(Option<&Object>) -> Option<Object>) -> Option<Datum> {
    match value {
        Datum::Object(object) => part(Some(object)).map(Datum::Object),
        Datum::Time(_) | Datum::Geometry(_) => {
            pseudo::from_object(part(pseudo::to_object(value).as_ref())?).ok()
        }
        Datum::Array(items) if arrays == Arrays::Enter => {
            let parts = items.iter().map(|item| part_of(item, Arrays::Refuse, part));
            parts.collect::<Option<Vec<_>>>().map(Datum::from)
        }
        _ => part(None).map(Datum::Object),
    }
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

/// A spec may be tens of thousands of levels deep: its parts are dropped from a list, not by
/// recursion.
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

    fn object(text: &str) -> Object {
        match json::parse(text.as_bytes()) {
            Ok(Datum::Object(object)) => object,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn stored_rows_answer_like_objects_in_memory() {
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
            let spec = PathSpec::of(&value).expect("a legal path spec");
            for (of_stored, of_tree) in
                [(spec.pluck(&stored), spec.pluck(&tree)), (spec.without(&stored), spec.without(&tree))]
            {
                assert_eq!(Datum::Object(of_stored), Datum::Object(of_tree), "{value:?}");
            }
            assert_eq!(spec.is_in(&stored), spec.is_in(&tree), "{value:?}");
        }
    }

    #[test]
    fn a_spec_of_any_depth_is_dropped() {
        let mut value = Datum::from("a");
        for _ in 0..200_000 {
            value = Datum::from(vec![value]);
        }
        drop(PathSpec::of(&value).expect("a legal path spec"));
    }
}
