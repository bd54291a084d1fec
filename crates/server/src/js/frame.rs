//! The protocol of the pipes: four bytes of length, little-endian, then a JSON object. Requests and responses
//! alternate, the request first.

use std::io::{self, Read, Write};

use datum::{Datum, Object, ObjectBuilder, Text, json};

/// The largest frame. Memory limits keep the values of scripts smaller.
pub(super) const FRAME_BYTES_MAX: usize = 256 << 20;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum SandboxRequest {
    /// Start again with a fresh engine.
    Reset,
    /// Evaluate a script.
    Eval { source: Text, limits: Limits },
    /// Call a kept function with these arguments.
    Call { function: u64, values: Vec<Datum>, limits: Limits },
    /// Drop a function.
    Release { function: u64 },
}

/// The limits of a script.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// Seconds of processor time after which the system kills the sandbox, if the server has not done so before.
    pub cpu_seconds: u64,
    /// The largest array it may return.
    pub array_items: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum SandboxResponse {
    /// Done, without a value.
    Done,
    /// A value.
    Datum(Datum),
    /// A function, which the sandbox keeps under this number.
    Function(u64),
    /// Why the script failed.
    Error(Text),
}

impl SandboxRequest {
    pub(super) fn to_object(&self) -> Object {
        match self {
            SandboxRequest::Reset => object([("ask", "reset".into())]),
            SandboxRequest::Eval { source, limits } => object([
                ("ask", "eval".into()),
                ("source", Datum::String(source.clone())),
                ("cpu", number(limits.cpu_seconds)),
                ("items", number(limits.array_items)),
            ]),
            SandboxRequest::Call { function, values, limits } => object([
                ("ask", "call".into()),
                ("function", number(*function)),
                ("values", values.clone().into()),
                ("cpu", number(limits.cpu_seconds)),
                ("items", number(limits.array_items)),
            ]),
            SandboxRequest::Release { function } => {
                object([("ask", "release".into()), ("function", number(*function))])
            }
        }
    }

    pub(super) fn from_object(object: &Object) -> Option<SandboxRequest> {
        let limits =
            || Some(Limits { cpu_seconds: count(object, "cpu")?, array_items: count(object, "items")? });
        match text(object, "ask")?.as_ref() {
            "reset" => Some(SandboxRequest::Reset),
            "eval" => Some(SandboxRequest::Eval { source: text(object, "source")?, limits: limits()? }),
            "call" => {
                let Some(Datum::Array(values)) = object.get("values") else { return None };
                let function = count(object, "function")?;
                Some(SandboxRequest::Call { function, values: values.into_vec(), limits: limits()? })
            }
            "release" => Some(SandboxRequest::Release { function: count(object, "function")? }),
            _ => None,
        }
    }
}

impl SandboxResponse {
    pub(super) fn to_object(&self) -> Object {
        match self {
            SandboxResponse::Done => object([]),
            SandboxResponse::Datum(value) => object([("datum", value.clone())]),
            SandboxResponse::Function(function) => object([("function", number(*function))]),
            SandboxResponse::Error(why) => object([("error", Datum::String(why.clone()))]),
        }
    }

    pub(super) fn from_object(object: &Object) -> Option<SandboxResponse> {
        if let Some(value) = object.get("datum") {
            return Some(SandboxResponse::Datum(value));
        }
        if object.contains_key("function") {
            return count(object, "function").map(SandboxResponse::Function);
        }
        if object.contains_key("error") {
            return text(object, "error").map(SandboxResponse::Error);
        }
        object.is_empty().then_some(SandboxResponse::Done)
    }
}

fn object<const N: usize>(fields: [(&'static str, Datum); N]) -> Object {
    let mut out = ObjectBuilder::new();
    for (name, value) in fields {
        out.insert(Text::from_static(name), value);
    }
    out.build()
}

#[allow(clippy::cast_precision_loss)] // counters stay far below 2^53
fn number(n: u64) -> Datum {
    Datum::Number(n as f64)
}

fn text(object: &Object, name: &str) -> Option<Text> {
    match object.get(name) {
        Some(Datum::String(text)) => Some(text),
        _ => None,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be a count
fn count(object: &Object, name: &str) -> Option<u64> {
    match object.get(name) {
        Some(Datum::Number(n)) if n >= 0.0 && n.fract() == 0.0 && n < 9e15 => Some(n as u64),
        _ => None,
    }
}

/// Writes a frame.
pub(super) fn write(out: &mut impl Write, object: Object) -> io::Result<()> {
    let text = Datum::Object(object).to_json_string();
    let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= FRAME_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "frame too long"))?;
    let mut frame = Vec::with_capacity(4 + text.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(text.as_bytes());
    out.write_all(&frame)?;
    out.flush()
}

/// Reads a frame; `None` at the end of the stream.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Object>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut body = vec![0; length_of(length)?];
    from.read_exact(&mut body)?;
    body_of(&body).map(Some)
}

/// The length in the header of a frame.
pub(super) fn length_of(bytes: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
    match length <= FRAME_BYTES_MAX {
        true => Ok(length),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long")),
    }
}

/// Parses the body of a frame.
pub(super) fn body_of(body: &[u8]) -> io::Result<Object> {
    match json::parse(body) {
        Ok(Datum::Object(object)) => Ok(object),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that is not an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_frames_can_be_read() {
        let limits = Limits { cpu_seconds: 7, array_items: 100_000 };
        let values = vec![Datum::Null, 1.into(), Datum::from("a\u{0}b"), vec![Datum::Bool(true)].into()];
        for request in [
            SandboxRequest::Reset,
            SandboxRequest::Eval { source: "1 + 1".into(), limits },
            SandboxRequest::Call { function: 3, values, limits },
            SandboxRequest::Release { function: 3 },
        ] {
            let mut bytes = Vec::new();
            write(&mut bytes, request.to_object()).expect("memory");
            let object = read(&mut bytes.as_slice()).expect("a frame").expect("not the end");
            assert_eq!(SandboxRequest::from_object(&object), Some(request));
        }
        for answer in [
            SandboxResponse::Done,
            SandboxResponse::Datum(Datum::Null),
            SandboxResponse::Function(0),
            SandboxResponse::Error("no".into()),
        ] {
            assert_eq!(SandboxResponse::from_object(&answer.to_object()), Some(answer));
        }
    }

    #[test]
    fn invalid_frames_are_refused() {
        assert!(read(&mut [0xff, 0xff, 0xff, 0xff].as_slice()).is_err());
        assert!(read(&mut [2, 0, 0, 0, b'[', b']'].as_slice()).is_err());
        assert!(read(&mut [9, 0, 0, 0, b'{'].as_slice()).is_err());
        assert!(matches!(read(&mut [].as_slice()), Ok(None)));
    }
}
