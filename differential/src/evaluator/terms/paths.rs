//! The arguments of `pluck`, `without` and `has_fields`: fields, and fields in fields.

use std::collections::BTreeMap;

use super::members::{members, of_members};
use crate::fault::{Fault, Out};
use crate::value::Val;

/// Fields of an object.
pub(super) enum Paths {
    Field(String),
    All(Vec<Paths>),
    Inside(Vec<(String, Paths)>),
}

impl Paths {
    /// The selection of one field.
    pub(super) fn of(value: &Val) -> Out<Paths> {
        match value {
            Val::Text(field) => Ok(Paths::Field(field.clone())),
            Val::Array(items) => items.iter().map(Paths::of).collect::<Out<_>>().map(Paths::All),
            Val::Object(members) => {
                let (mut whole, mut inside) = (Vec::new(), Vec::new());
                for (name, spec) in members {
                    match spec {
                        Val::Bool(true) => whole.push(Paths::Field(name.clone())),
                        spec => inside.push((name.clone(), Paths::of(spec)?)),
                    }
                }
                whole.push(Paths::Inside(inside));
                Ok(Paths::All(whole))
            }
            _ => Err(Fault::logic("invalid path argument")),
        }
    }

    /// Whether it names fields of fields.
    pub(super) fn looks_inside(&self) -> bool {
        match self {
            Paths::Field(_) => false,
            Paths::All(paths) => paths.iter().any(Paths::looks_inside),
            Paths::Inside(paths) => !paths.is_empty(),
        }
    }

    /// Only the named fields; of an array inside an object, the same of each item. `None` without an object.
    pub(super) fn pluck(&self, value: &Val, inside: bool) -> Option<Val> {
        if let (Val::Array(items), true) = (value, inside) {
            return items.iter().map(|item| self.pluck(item, false)).collect::<Option<_>>().map(Val::Array);
        }
        let Some(members) = members(value) else {
            return self.is_nothing().then(|| Val::Object(BTreeMap::new()));
        };
        let mut out = BTreeMap::new();
        match self {
            Paths::Field(name) => out.extend(members.get(name).map(|value| (name.clone(), value.clone()))),
            Paths::All(paths) => {
                for path in paths {
                    if let Val::Object(part) = path.pluck(value, inside)? {
                        out.extend(part);
                    }
                }
            }
            Paths::Inside(paths) => {
                for (name, path) in paths {
                    let part = members.get(name).and_then(|value| path.pluck(value, true));
                    out.extend(part.map(|part| (name.clone(), part)));
                }
            }
        }
        of_members(out).ok()
    }

    fn is_nothing(&self) -> bool {
        match self {
            Paths::Field(_) => false,
            Paths::All(paths) => paths.iter().all(Paths::is_nothing),
            Paths::Inside(paths) => paths.is_empty(),
        }
    }

    /// All but the named fields; of an array inside an object, the same of each item. `None` without an object, or if a time or
    /// shape would lose a member.
    pub(super) fn without(&self, value: &Val, inside: bool) -> Option<Val> {
        if let (Val::Array(items), true) = (value, inside) {
            return items.iter().map(|item| self.without(item, false)).collect::<Option<_>>().map(Val::Array);
        }
        let mut members = members(value)?;
        self.remove_from(&mut members);
        of_members(members).ok()
    }

    fn remove_from(&self, members: &mut BTreeMap<String, Val>) {
        match self {
            Paths::Field(name) => {
                members.remove(name);
            }
            Paths::All(paths) => paths.iter().for_each(|path| path.remove_from(members)),
            Paths::Inside(paths) => {
                for (name, path) in paths {
                    if let Some(value) = members.get_mut(name)
                        && let Some(left) = path.without(value, true)
                    {
                        *value = left;
                    }
                }
            }
        }
    }

    /// Whether all named fields exist and are not null.
    pub(super) fn has(&self, value: &Val) -> bool {
        match (self, members(value)) {
            (Paths::All(paths), _) => paths.iter().all(|path| path.has(value)),
            (Paths::Field(name), Some(members)) => {
                members.get(name).is_some_and(|value| !matches!(value, Val::Null))
            }
            (Paths::Inside(paths), Some(members)) => {
                paths.iter().all(|(name, path)| members.get(name).is_some_and(|value| path.has(value)))
            }
            (Paths::Inside(paths), None) => paths.is_empty(),
            (Paths::Field(_), None) => false,
        }
    }
}
