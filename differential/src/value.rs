//! Values of the reference: a plain tree with its order and its JSON.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json, json};

/// The name of a member that stands for further members that no rule determines.
pub const MORE: &str = "\u{0}more";

/// A ReQL datum.
#[derive(Clone, Debug)]
pub enum Val {
    /// `minval`.
    MinVal,
    Array(Vec<Val>),
    /// True or false.
    Bool(bool),
    Null,
    /// A number, finite.
    Number(f64),
    /// An object; keys are in byte order.
    Object(BTreeMap<String, Val>),
    /// Bytes.
    Binary(Vec<u8>),
    /// A moment: seconds since 1970, and the zone in minutes east of Greenwich.
    Time(f64, i32),
    /// A shape on the earth: the name of its GeoJSON type and its coordinates as arrays of numbers.
    Shape(String, Box<Val>),
    Text(String),
    /// `maxval`.
    MaxVal,
    /// A `literal` in an argument of `merge`; without a value it removes a field.
    Literal(Option<Box<Val>>),
}

impl Val {
    /// The datum of JSON in a result or a row.
    #[must_use]
    pub fn of_json(json: &Json) -> Val {
        match json {
            Json::Null => Val::Null,
            Json::Bool(b) => Val::Bool(*b),
            Json::Number(n) => Val::Number(n.as_f64().unwrap_or(f64::NAN)),
            Json::String(text) => Val::Text(text.clone()),
            Json::Array(items) => Val::Array(items.iter().map(Val::of_json).collect()),
            Json::Object(members) => Val::of_members(members),
        }
    }

    fn of_members(members: &Map<String, Json>) -> Val {
        let text = |name: &str| members.get(name).and_then(Json::as_str).unwrap_or_default();
        match text("$reql_type$") {
            "BINARY" => Val::Binary(BASE64.decode(text("data")).unwrap_or_default()),
            "TIME" => {
                let seconds = members.get("epoch_time").and_then(Json::as_f64).unwrap_or(f64::NAN);
                Val::Time(seconds, zone_of(text("timezone")).unwrap_or(0))
            }
            "GEOMETRY" => {
                let coordinates = members.get("coordinates").map_or(Val::Null, Val::of_json);
                Val::Shape(text("type").to_owned(), Box::new(coordinates))
            }
            _ => Val::Object(members.iter().map(|(k, v)| (k.clone(), Val::of_json(v))).collect()),
        }
    }

    /// The JSON that clients get; for bounds, which have none, a text that is no value.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Val::MinVal => json!("\u{0}minval"),
            Val::MaxVal => json!("\u{0}maxval"),
            Val::Null => Json::Null,
            Val::Bool(b) => json!(b),
            Val::Number(n) => number_json(*n),
            Val::Text(text) => json!(text),
            Val::Array(items) => items.iter().map(Val::to_json).collect(),
            Val::Object(members) => members.iter().map(|(k, v)| (k.clone(), v.to_json())).collect(),
            Val::Binary(bytes) => json!({"$reql_type$": "BINARY", "data": BASE64.encode(bytes)}),
            Val::Time(seconds, zone) => {
                json!({"$reql_type$": "TIME", "epoch_time": number_json(*seconds), "timezone": zone_text(*zone)})
            }
            Val::Shape(kind, coordinates) => {
                json!({"$reql_type$": "GEOMETRY", "coordinates": coordinates.to_json(), "type": kind})
            }
            Val::Literal(value) => json!({"\u{0}literal": value.as_ref().map(|v| v.to_json())}),
        }
    }

    /// The name of its type, by which values of different types are ordered.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Val::MinVal => "MINVAL",
            Val::Array(_) => "ARRAY",
            Val::Bool(_) => "BOOL",
            Val::Null => "NULL",
            Val::Number(_) => "NUMBER",
            Val::Object(_) => "OBJECT",
            Val::Binary(_) => "PTYPE<BINARY>",
            Val::Shape(..) => "PTYPE<GEOMETRY>",
            Val::Time(..) => "PTYPE<TIME>",
            Val::Text(_) => "STRING",
            Val::MaxVal => "MAXVAL",
            Val::Literal(_) => "PTYPE<LITERAL>",
        }
    }

    /// Whether it counts as true.
    #[must_use]
    pub fn truth(&self) -> bool {
        !matches!(self, Val::Null | Val::Bool(false))
    }

    /// Whether it is a pseudotype, which terms over objects refuse.
    #[must_use]
    pub fn is_pseudo(&self) -> bool {
        matches!(self, Val::Binary(_) | Val::Shape(..) | Val::Time(..) | Val::Literal(_))
    }

    /// Whether `minval` or `maxval` is anywhere in it.
    #[must_use]
    pub fn has_bound(&self) -> bool {
        match self {
            Val::MinVal | Val::MaxVal => true,
            Val::Array(items) => items.iter().any(Val::has_bound),
            Val::Object(members) => members.values().any(Val::has_bound),
            _ => false,
        }
    }
}

/// A number as ReQL prints it: whole ones without a point.
#[must_use]
pub fn number_json(n: f64) -> Json {
    let whole = n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_992.0 && !(n == 0.0 && n.is_sign_negative());
    if whole { json!(n as i64) } else { json!(n) }
}

/// `+hh:mm`.
#[must_use]
pub fn zone_text(minutes: i32) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

/// The minutes of `Z`, `+hh`, `+hhmm` or `+hh:mm`; `None` for anything else.
#[must_use]
pub fn zone_of(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = match &text[1..] {
        rest if rest.len() == 5 && rest.as_bytes()[2] == b':' => rest.replacen(':', "", 1),
        rest if rest.len() == 2 || rest.len() == 4 => rest.to_owned(),
        _ => return None,
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hours: i32 = digits[..2].parse().ok()?;
    let minutes: i32 = if digits.len() == 4 { digits[2..].parse().ok()? } else { 0 };
    if hours > 24 || minutes > 59 || (sign < 0 && hours == 0 && minutes == 0) {
        return None;
    }
    Some(sign * (hours * 60 + minutes))
}

impl Ord for Val {
    fn cmp(&self, other: &Val) -> Ordering {
        match (self, other) {
            (Val::MinVal, Val::MinVal) | (Val::MaxVal, Val::MaxVal) => Ordering::Equal,
            (Val::MinVal, _) | (_, Val::MaxVal) => Ordering::Less,
            (Val::MaxVal, _) | (_, Val::MinVal) => Ordering::Greater,
            (Val::Array(a), Val::Array(b)) => a.cmp(b),
            (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
            (Val::Number(a), Val::Number(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            // Pair by pair: the key, then the value; a prefix is less.
            (Val::Object(a), Val::Object(b)) => a.iter().cmp(b.iter()),
            (Val::Binary(a), Val::Binary(b)) => a.cmp(b),
            // As the objects they are sent as: the coordinates come before the type.
            (Val::Shape(a, at), Val::Shape(b, other)) => (at, a).cmp(&(other, b)),
            (Val::Time(a, _), Val::Time(b, _)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (Val::Text(a), Val::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => self.type_name().cmp(other.type_name()),
        }
    }
}

impl PartialOrd for Val {
    fn partial_cmp(&self, other: &Val) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Val {
    fn eq(&self, other: &Val) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Val {}
