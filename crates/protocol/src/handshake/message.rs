//! The JSON messages of a V1_0 handshake.

use serde_json::{Map, Value};

use super::{MESSAGE_BYTES_MAX, Refusal};

/// The result of looking for one client message.
pub(super) enum Cut<'a> {
    /// There is no NUL yet, and the message may still become longer.
    NeedMore,
    /// A message without its NUL. The next message begins after `used` bytes.
    Message { text: &'a [u8], used: usize },
}

/// Finds the NUL that ends a client's message.
pub(super) fn cut_client(input: &[u8]) -> Result<Cut<'_>, Refusal> {
    let window = input.get(..MESSAGE_BYTES_MAX).unwrap_or(input);
    match cut(window) {
        Cut::NeedMore if window.len() == MESSAGE_BYTES_MAX => Err(Refusal::MessageTooLong),
        found => Ok(found),
    }
}

/// Finds the NUL that ends a message.
pub(super) fn cut(input: &[u8]) -> Cut<'_> {
    match input.iter().position(|byte| *byte == 0) {
        Some(end) => Cut::Message { text: input.get(..end).unwrap_or_default(), used: end + 1 },
        None => Cut::NeedMore,
    }
}

/// Reads `text` as a JSON object with unique keys. A value of another kind counts as an empty object: the refusal
/// then names the missing field.
pub(super) fn parse(text: &[u8]) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice::<Value>(text) {
        Err(_) => Err(Refusal::InvalidJson),
        Ok(Value::Object(object)) if object.len() == count_members(text) => Ok(object),
        Ok(Value::Object(_)) => Err(Refusal::NotADatum),
        Ok(_) => Ok(Map::new()),
    }
}

/// Counts the members of the outermost object; duplicate keys count twice.
fn count_members(text: &[u8]) -> usize {
    struct Members;
    impl<'de> serde::de::Visitor<'de> for Members {
        type Value = usize;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
    }
    let mut parser = serde_json::Deserializer::from_slice(text);
    serde::Deserializer::deserialize_map(&mut parser, Members).unwrap_or_default()
}

/// The SCRAM text of a client's first message. Checks its version and authentication method.
pub(super) fn first_authentication(object: &Map<String, Value>) -> Result<&str, Refusal> {
    let version = object.get("protocol_version").and_then(Value::as_f64).ok_or(Refusal::VersionNotNumber)?;
    if version != 0.0 {
        return Err(Refusal::VersionUnsupported);
    }
    let method =
        object.get("authentication_method").and_then(Value::as_str).ok_or(Refusal::MethodNotString)?;
    if method != "SCRAM-SHA-256" {
        return Err(Refusal::MethodUnsupported);
    }
    authentication(object)
}

/// The SCRAM text of a client's message.
pub(super) fn authentication(object: &Map<String, Value>) -> Result<&str, Refusal> {
    object.get("authentication").and_then(Value::as_str).ok_or(Refusal::AuthenticationNotString)
}

/// Appends `{"authentication":<text>,"success":true}` and its NUL.
pub(super) fn write_authentication(out: &mut Vec<u8>, text: &str) {
    let body = serde_json::json!({"authentication": text, "success": true});
    out.extend_from_slice(body.to_string().as_bytes());
    out.push(0);
}
