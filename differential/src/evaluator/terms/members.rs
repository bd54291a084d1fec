//! Times and shapes as objects, as JSON has them.

use std::collections::BTreeMap;

use crate::fault::{Fault, Out};
use crate::value::{Val, zone_of, zone_text};

/// The members of a value that counts as an object.
pub(super) fn members(value: &Val) -> Option<BTreeMap<String, Val>> {
    let named = |kind: &str, more: [(&str, Val); 2]| {
        let all = [("$reql_type$", Val::Text(kind.to_owned()))].into_iter().chain(more);
        Some(all.map(|(name, value)| (name.to_owned(), value)).collect())
    };
    match value {
        Val::Object(members) => Some(members.clone()),
        Val::Time(seconds, zone) => {
            named("TIME", [("epoch_time", Val::Number(*seconds)), ("timezone", Val::Text(zone_text(*zone)))])
        }
        Val::Shape(kind, coordinates) => {
            named("GEOMETRY", [("type", Val::Text(kind.clone())), ("coordinates", (**coordinates).clone())])
        }
        _ => None,
    }
}

/// The value with these members: an object, or a pseudotype if a member names one.
pub(super) fn of_members(mut members: BTreeMap<String, Val>) -> Out<Val> {
    match members.get("$reql_type$").cloned() {
        None => Ok(Val::Object(members)),
        Some(Val::Text(kind)) if kind == "TIME" => {
            members.remove("$reql_type$");
            let (Some(Val::Number(seconds)), Some(Val::Text(zone)), 2) =
                (members.get("epoch_time"), members.get("timezone"), members.len())
            else {
                return Err(Fault::logic("no time"));
            };
            let zone = zone_of(zone).ok_or_else(|| Fault::logic("no zone"))?;
            Ok(Val::Time((seconds * 1000.0).round() / 1000.0, zone))
        }
        Some(Val::Text(kind)) if kind == "GEOMETRY" => {
            members.remove("$reql_type$");
            // In the order of their names: the first faulty one is reported.
            for (name, value) in &members {
                match (name.as_str(), value) {
                    ("coordinates", Val::Array(_)) | ("type", Val::Text(_)) => {}
                    ("coordinates", other) => return Err(Fault::expected("ARRAY", other)),
                    ("type", other) => return Err(Fault::expected("STRING", other)),
                    ("crs", _) => return Err(Fault::unspecified("a reference system")),
                    _ => return Err(Fault::logic("no member of a shape")),
                }
            }
            match (members.remove("type"), members.remove("coordinates")) {
                (Some(Val::Text(kind)), Some(coordinates)) => Ok(Val::Shape(kind, Box::new(coordinates))),
                _ => Err(Fault::missing("a shape without type or coordinates")),
            }
        }
        Some(_) => Err(Fault::unspecified("another pseudotype made by merging")),
    }
}
