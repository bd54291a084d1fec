//! Checks the members of a `$reql_type$` object and converts them to a value.

use crate::print::TYPE_KEY;
use crate::{Datum, Object, Text, Time, binary};

/// The value of sorted `members` that include a `$reql_type$`: a time, binary or geometry. A literal stays an
/// object. Fails with the ReQL message.
///
/// Source: docs/reql-spec.md sections 3 and 16.
pub(crate) fn read(members: Vec<(Text, Datum)>) -> Result<Datum, String> {
    let name = match find(&members, TYPE_KEY) {
        Some(Datum::String(name)) => name.clone(),
        Some(other) => return Err(wrong_name(other.clone(), members)),
        None => return Ok(Datum::Object(Object::from_sorted(members))),
    };
    match &*name {
        "TIME" => read_time(members),
        "BINARY" => read_binary(&members),
        "GEOMETRY" => read_geometry(members),
        "LITERAL" => read_literal(members),
        other => Err(format!("Unknown $reql_type$ `PTYPE<{other}>`.")),
    }
}

fn find<'a>(members: &'a [(Text, Datum)], key: &str) -> Option<&'a Datum> {
    members.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
}

fn expected(kind: &str, found: &Datum) -> String {
    format!("Expected type {kind} but found {}.", found.kind().name())
}

fn wrong_name(name: Datum, members: Vec<(Text, Datum)>) -> String {
    let kind = name.kind().name();
    let object = Datum::Object(Object::from_sorted(members)).truncated();
    let name = name.truncated();
    format!("Error: Field `{TYPE_KEY}` must be a string (got `{name}` of type {kind}):\n{object}")
}

fn read_time(members: Vec<(Text, Datum)>) -> Result<Datum, String> {
    time_of(&members).map(Datum::Time).map_err(|why| {
        let object = Datum::Object(Object::from_sorted(members)).truncated();
        format!("Invalid time object constructed ({why}):\n{object}")
    })
}

/// The time of sorted members. Fails with the reason for the first invalid member.
fn time_of(members: &[(Text, Datum)]) -> Result<Time, String> {
    let mut epoch = None;
    let mut offset = None;
    for (key, value) in members {
        match (&**key, value) {
            (TYPE_KEY, _) => {}
            ("epoch_time", Datum::Number(n)) => epoch = Some(*n),
            ("epoch_time", other) => return Err(wrong_field(key, "number", other)),
            ("timezone", Datum::String(zone)) => {
                let minutes = Time::parse_offset(zone);
                offset = Some(minutes.ok_or_else(|| wrong_zone(value))?);
            }
            ("timezone", other) => return Err(wrong_field(key, "string", other)),
            _ => return Err(format!("unrecognized field `{}`", &**key)),
        }
    }
    let epoch = epoch.ok_or("no field `epoch_time`")?;
    let offset = offset.ok_or("no field `timezone`")?;
    Ok(Time::new(epoch, offset))
}

fn wrong_zone(zone: &Datum) -> String {
    format!("invalid timezone string `{}`", zone.truncated())
}

fn wrong_field(key: &str, kind: &str, found: &Datum) -> String {
    let name = found.kind().name();
    format!("field `{key}` must be a {kind} (got `{}` of type {name})", found.truncated())
}

fn read_binary(members: &[(Text, Datum)]) -> Result<Datum, String> {
    if let Some((key, _)) = members.iter().find(|(k, _)| *k != TYPE_KEY && *k != "data") {
        return Err(format!("Invalid binary pseudotype: illegal `{}` key.", &**key));
    }
    match find(members, "data") {
        Some(Datum::String(text)) => Ok(Datum::Binary(binary::read_base64(text)?.into())),
        Some(other) => Err(expected("STRING", other)),
        None => Err("Invalid binary pseudotype: lacking `data` key.".to_owned()),
    }
}

/// Checks only the outline of a geometry. Its coordinates are checked when it is used.
fn read_geometry(mut members: Vec<(Text, Datum)>) -> Result<Datum, String> {
    members.retain(|(key, _)| *key != TYPE_KEY);
    for (key, value) in &members {
        match (&**key, value) {
            ("coordinates", Datum::Array(_)) | ("type", Datum::String(_)) | ("crs", _) => {}
            ("coordinates", other) => return Err(expected("ARRAY", other)),
            ("type", other) => return Err(expected("STRING", other)),
            _ => return Err(format!("Unrecognized field `{}` found in geometry object.", &**key)),
        }
    }
    for field in ["type", "coordinates"] {
        if find(&members, field).is_none() {
            return Err(format!("Field `{field}` not found in geometry object."));
        }
    }
    Ok(Datum::Geometry(Object::from_sorted(members)))
}

fn read_literal(members: Vec<(Text, Datum)>) -> Result<Datum, String> {
    let illegal = members.iter().find(|(key, _)| *key != TYPE_KEY && *key != "value");
    match illegal {
        Some((key, _)) => Err(format!("Invalid literal term with illegal key `{}`.", &**key)),
        None => Ok(Datum::Object(Object::from_sorted(members))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(list: &[(&str, Datum)]) -> Vec<(Text, Datum)> {
        let mut members: Vec<_> = list.iter().map(|(k, v)| (Text::from(*k), v.clone())).collect();
        members.sort_by(|a, b| a.0.cmp(&b.0));
        members
    }

    #[track_caller]
    fn check(list: &[(&str, Datum)], expected: &str) {
        let found = match read(members(list)) {
            Ok(value) => value.to_json_string(),
            Err(message) => message,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn times_are_checked_and_normalised() {
        let name = (TYPE_KEY, Datum::from("TIME"));
        let zone = ("timezone", Datum::from("-07"));
        let epoch = ("epoch_time", Datum::from(1375445162.0872));
        check(
            &[name.clone(), zone.clone(), epoch.clone()],
            r#"{"$reql_type$":"TIME","epoch_time":1375445162.087,"timezone":"-07:00"}"#,
        );
        check(
            &[name.clone(), zone.clone()],
            "Invalid time object constructed (no field `epoch_time`):\n{\n\t\"$reql_type$\":\t\"TIME\",\n\t\"timezone\":\t\"-07\"\n}",
        );
        check(
            &[name.clone(), ("timezone", Datum::from(1))],
            "Invalid time object constructed (field `timezone` must be a string (got `1` of type NUMBER)):\n{\n\t\"$reql_type$\":\t\"TIME\",\n\t\"timezone\":\t1\n}",
        );
        check(
            &[name.clone(), epoch.clone(), ("timezone", Datum::from("x"))],
            "Invalid time object constructed (invalid timezone string `\"x\"`):\n{\n\t\"$reql_type$\":\t\"TIME\",\n\t\"epoch_time\":\t1375445162.0872,\n\t\"timezone\":\t\"x\"\n}",
        );
        check(
            &[name, epoch, ("a", Datum::Null)],
            "Invalid time object constructed (unrecognized field `a`):\n{\n\t\"$reql_type$\":\t\"TIME\",\n\t\"a\":\tnull,\n\t\"epoch_time\":\t1375445162.0872\n}",
        );
    }

    #[test]
    fn binaries_are_decoded() {
        let name = (TYPE_KEY, Datum::from("BINARY"));
        check(&[name.clone(), ("data", Datum::from("Zm9v"))], r#"{"$reql_type$":"BINARY","data":"Zm9v"}"#);
        check(std::slice::from_ref(&name), "Invalid binary pseudotype: lacking `data` key.");
        check(&[name.clone(), ("data", Datum::Null)], "Expected type STRING but found NULL.");
        check(&[name, ("x", Datum::Null)], "Invalid binary pseudotype: illegal `x` key.");
    }

    #[test]
    fn shapes_are_checked_in_outline() {
        let name = (TYPE_KEY, Datum::from("GEOMETRY"));
        let kind = ("type", Datum::from("Point"));
        let place = ("coordinates", Datum::from(vec![Datum::from(1), Datum::from(2)]));
        check(
            &[name.clone(), kind.clone(), place.clone()],
            r#"{"$reql_type$":"GEOMETRY","coordinates":[1,2],"type":"Point"}"#,
        );
        check(&[name.clone(), place.clone()], "Field `type` not found in geometry object.");
        check(&[name.clone(), kind], "Field `coordinates` not found in geometry object.");
        check(&[name.clone(), ("type", Datum::Null)], "Expected type STRING but found NULL.");
        check(&[name, place, ("foo", Datum::Null)], "Unrecognized field `foo` found in geometry object.");
    }

    #[test]
    fn other_names_are_refused_and_literals_stay_objects() {
        check(&[(TYPE_KEY, Datum::from("FOO"))], "Unknown $reql_type$ `PTYPE<FOO>`.");
        check(
            &[(TYPE_KEY, Datum::from(1))],
            "Error: Field `$reql_type$` must be a string (got `1` of type NUMBER):\n{\n\t\"$reql_type$\":\t1\n}",
        );
        let extra = [(TYPE_KEY, Datum::from("LITERAL")), ("x", Datum::Null)];
        check(&extra, "Invalid literal term with illegal key `x`.");
        check(&[(TYPE_KEY, Datum::from("LITERAL"))], r#"{"$reql_type$":"LITERAL"}"#);
        check(&[("a", Datum::from(1))], r#"{"a":1}"#);
    }
}
