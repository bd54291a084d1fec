//! A key between two others, to divide a range among readers. It need not be in the table.

use serde_json::{Number, Value};

use crate::key::Key;

/// Bytes of a string that are looked at after the common beginning.
const DIGITS: usize = 6;
/// Printable characters: their bytes are a number to this base.
const FIRST: u128 = 0x20;
const BASE: u128 = 0x5f;

/// A key between `low` and `high`, about in the middle if keys are spread evenly. `None` if there is none, or if both are not
/// numbers, not strings, not times, and not arrays that first differ in two such values.
pub fn middle(low: &Key, high: &Key) -> Option<Key> {
    let parse = |key: &Key| serde_json::from_str::<Value>(&key.to_json()).ok();
    let value = middle_value(&parse(low)?, &parse(high)?)?;
    Key::parse(&value.to_string()).ok().filter(|key| low < key && key < high)
}

fn middle_value(low: &Value, high: &Value) -> Option<Value> {
    match (low, high) {
        (Value::Number(a), Value::Number(b)) => middle_number(a.as_f64()?, b.as_f64()?).map(Value::Number),
        (Value::String(a), Value::String(b)) => Some(Value::from(middle_string(a, b))),
        (Value::Array(a), Value::Array(b)) => middle_array(a, b).map(Value::Array),
        (Value::Object(_), Value::Object(_)) => middle_time(low, high),
        _ => None,
    }
}

/// The common beginning, and a value between the first two that differ.
fn middle_array(a: &[Value], b: &[Value]) -> Option<Vec<Value>> {
    let common = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let differing = middle_value(a.get(common)?, b.get(common)?)?;
    Some(a[..common].iter().cloned().chain([differing]).collect())
}

fn middle_time(low: &Value, high: &Value) -> Option<Value> {
    let is_time = |value: &Value| value["$reql_type$"] == "TIME";
    let seconds = |value: &Value| value["epoch_time"].as_f64().filter(|_| is_time(value));
    let mut middle = low.clone();
    middle["epoch_time"] = middle_number(seconds(low)?, seconds(high)?)?.into();
    Some(middle)
}

/// Keys that divide the range between the edges of a table into about `count` pieces.
pub fn pieces(edges: Option<&(Key, Key)>, count: usize) -> Vec<Key> {
    let Some((first, last)) = edges else { return Vec::new() };
    let mut ends = vec![first.clone(), last.clone()];
    while ends.len() <= count {
        let between: Vec<Key> = ends.windows(2).filter_map(|pair| middle(&pair[0], &pair[1])).collect();
        if between.is_empty() {
            break;
        }
        ends.extend(between);
        ends.sort();
    }
    // The last piece ends with the table.
    ends.pop();
    ends.into_iter().skip(1).collect()
}

/// Whole if there is a whole number between.
fn middle_number(a: f64, b: f64) -> Option<Number> {
    let exact = a / 2.0 + b / 2.0;
    let whole = exact.floor();
    let chosen = if whole > a { whole } else { exact };
    Number::from_f64(chosen)
}

/// The common beginning, and the middle of the characters that follow, as numbers.
fn middle_string(a: &str, b: &str) -> String {
    let common: usize = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum();
    let digits = |text: &str| -> u128 {
        let bytes = text.as_bytes().get(common..).unwrap_or_default();
        let digit = |i: usize| match bytes.get(i) {
            None => 0,
            Some(byte) => u128::from(*byte).clamp(FIRST, FIRST + BASE - 1) - FIRST,
        };
        (0..DIGITS).fold(0, |sum, i| sum * BASE + digit(i))
    };
    let mut middle = u128::midpoint(digits(a), digits(b));
    let mut tail = [0u8; DIGITS];
    for place in tail.iter_mut().rev() {
        *place = (middle % BASE + FIRST) as u8;
        middle /= BASE;
    }
    let tail = tail.map(char::from).into_iter().collect::<String>();
    format!("{}{}", a.get(..common).unwrap_or_default(), tail.trim_end())
}

#[cfg(test)]
mod tests {
    use super::{middle, pieces};
    use crate::key::Key;

    #[track_caller]
    fn between(low: &str, high: &str) -> Option<String> {
        let (low, high) = (Key::parse(low).unwrap(), Key::parse(high).unwrap());
        let found = middle(&low, &high)?;
        assert!(low < found && found < high, "{low} {found} {high}");
        Some(found.to_json())
    }

    #[test]
    fn numbers_are_halved() {
        assert_eq!(between("0", "100").as_deref(), Some("50"));
        assert_eq!(between("-3", "4").as_deref(), Some("0"));
        assert_eq!(between("1", "2").as_deref(), Some("1.5"));
        assert_eq!(between("1", "1"), None);
        assert!(between("-1e308", "1e308").is_some());
    }

    #[test]
    fn strings_are_halved_after_their_common_beginning() {
        assert_eq!(between("\"user0\"", "\"user8\"").as_deref(), Some("\"user4\""));
        assert!(between("\"a\"", "\"b\"").unwrap().starts_with("\"a"));
        assert!(between("\"0000\"", "\"ffff\"").unwrap().starts_with("\"K"));
        assert_eq!(between("\"a\"", "\"a\""), None);
        assert!(between("\"\u{e9}a\"", "\"\u{e9}z\"").is_some());
    }

    #[test]
    fn a_range_is_halved_until_nothing_is_between() {
        let (low, mut high) = (Key::parse("\"a\"").unwrap(), Key::parse("\"b\"").unwrap());
        for _ in 0..1000 {
            let Some(found) = middle(&low, &high) else { return };
            high = found;
        }
        panic!("halved for ever: {high}");
    }

    #[test]
    fn a_table_has_pieces() {
        let key = |text: &str| Key::parse(text).unwrap();
        let shown = |ends: Vec<Key>| ends.iter().map(Key::to_json).collect::<Vec<_>>();
        assert_eq!(shown(pieces(Some(&(key("0"), key("100"))), 4)), ["25", "50", "75"]);
        let of_arrays = pieces(Some(&(key(r#"["a",0]"#), key(r#"["a",8]"#))), 4);
        assert_eq!(shown(of_arrays), [r#"["a",2]"#, r#"["a",4]"#, r#"["a",6]"#]);
        assert_eq!(pieces(Some(&(key("false"), key("true"))), 4), []);
        assert_eq!(pieces(None, 4), []);
    }

    #[test]
    fn arrays_are_halved_in_their_first_difference() {
        assert_eq!(between("[1]", "[9]").as_deref(), Some("[5]"));
        assert_eq!(between(r#"["a",1,true]"#, r#"["a",9]"#).as_deref(), Some(r#"["a",5]"#));
        assert_eq!(between("[[1,2],3]", "[[1,4]]").as_deref(), Some("[[1,3]]"));
        for (low, high) in [("[1]", "[1,5]"), ("[1]", "[\"a\"]"), ("[1]", "[1]"), ("[]", "[1]")] {
            assert_eq!(between(low, high), None, "{low} {high}");
        }
    }

    #[test]
    fn times_are_halved_in_any_zone() {
        let time = |seconds: &str, zone: &str| {
            format!(r#"{{"$reql_type$":"TIME","epoch_time":{seconds},"timezone":"{zone}"}}"#)
        };
        let found = between(&time("10", "+02:00"), &time("20", "+00:00")).unwrap();
        assert!(found.contains(r#""epoch_time":15,"#), "{found}");
        assert_eq!(between(&time("10", "+02:00"), &time("10", "+02:00")), None);
        let of_arrays =
            between(&format!("[1,{}]", time("0", "+00:00")), &format!("[1,{}]", time("1", "+00:00")));
        assert!(of_arrays.unwrap().contains("0.5"));
    }

    #[test]
    fn other_kinds_are_not_divided() {
        let binary = |data: &str| format!(r#"{{"$reql_type$":"BINARY","data":"{data}"}}"#);
        assert_eq!(between(&binary("AAAA"), &binary("AQAA")), None);
        assert_eq!(between("1", "\"a\""), None);
    }
}
