//! The columns of a row, as they stand in an SQL dump of Wikipedia.

/// The names of the columns. The first three are the key.
pub const NAMES: [&str; 15] = [
    "cur_id",
    "cur_namespace",
    "cur_title",
    "cur_text",
    "cur_comment",
    "cur_user",
    "cur_user_text",
    "cur_timestamp",
    "cur_restrictions",
    "cur_counter",
    "cur_is_redirect",
    "cur_minor_edit",
    "cur_random",
    "cur_touched",
    "inverse_timestamp",
];

/// How many of the columns are the key.
pub const KEY_COLUMNS: usize = 3;
/// RethinkDB's longest key that is a string.
pub const KEY_BYTES_MAX: usize = 127;

/// A row of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The key columns, joined by tabs.
    pub key: String,
    /// The document as JSON: `id`, and each other column as a string.
    pub document: String,
    /// A hash of the values of all columns that are not part of the key.
    pub digest: u32,
}

/// Why a line is no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line does not have as many columns as a row.
    #[error("{found} columns instead of {}", NAMES.len())]
    Columns {
        /// The number of columns.
        found: usize,
    },
    /// The bytes are not text.
    #[error("not UTF-8 from byte {at}")]
    NotUtf8 {
        /// The first byte that is wrong, from 0.
        at: usize,
    },
    /// A server would refuse the key.
    #[error("a key of {bytes} bytes, more than {KEY_BYTES_MAX}")]
    LongKey {
        /// The length of the key.
        bytes: usize,
    },
    /// A server would refuse the key, or a column of it.
    #[error("a key with a null character")]
    NullInKey,
    /// An earlier line has the same key.
    #[error("a key that stands in an earlier line")]
    Repeated,
}

impl LineError {
    /// The kind of the error, for counts.
    pub fn kind(&self) -> &'static str {
        match self {
            LineError::Columns { .. } => "wrong columns",
            LineError::NotUtf8 { .. } => "not UTF-8",
            LineError::LongKey { .. } | LineError::NullInKey => "no legal key",
            LineError::Repeated => "repeated key",
        }
    }
}

/// The row in `line`, which has no line break at its end.
pub fn parse(line: &[u8]) -> Result<Row, LineError> {
    let text = std::str::from_utf8(line).map_err(|error| LineError::NotUtf8 { at: error.valid_up_to() })?;
    let columns: Vec<&str> = text.split('\t').collect();
    if columns.len() != NAMES.len() {
        return Err(LineError::Columns { found: columns.len() });
    }
    let (key, values) = columns.split_at(KEY_COLUMNS);
    let key = key.join("\t");
    if key.len() > KEY_BYTES_MAX {
        return Err(LineError::LongKey { bytes: key.len() });
    }
    if key.contains('\0') {
        return Err(LineError::NullInKey);
    }
    let mut document = String::with_capacity(line.len() + line.len() / 8 + 300);
    document.push_str("{\"id\":");
    push_json(&key, &mut document);
    for (name, value) in NAMES[KEY_COLUMNS..].iter().zip(values) {
        document.push_str(&format!(",\"{name}\":"));
        push_json(value, &mut document);
    }
    document.push('}');
    Ok(Row { key, document, digest: digest(values.iter().copied()) })
}

/// Appends `text` as a JSON string.
pub fn push_json(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// A hash of the values of a row, in the order of the columns: FNV-1a over the values and their ends.
pub fn digest<'a>(values: impl Iterator<Item = &'a str>) -> u32 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for value in values {
        for byte in value.bytes().chain([0xFF]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
    (hash ^ (hash >> 32)) as u32
}

/// The digest of a document that a server has returned; `None` if it has no such columns.
pub fn digest_of(document: &serde_json::Value) -> Option<u32> {
    let values: Option<Vec<&str>> = NAMES[KEY_COLUMNS..].iter().map(|name| document[name].as_str()).collect();
    Some(digest(values?.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(columns: usize) -> String {
        (0..columns).map(|column| format!("'column \"{column}\"\\n'")).collect::<Vec<_>>().join("\t")
    }

    #[test]
    fn a_line_becomes_a_document_and_its_digest_is_found_again() {
        let row = parse(line(15).as_bytes()).unwrap();
        assert_eq!(row.key, "'column \"0\"\\n'\t'column \"1\"\\n'\t'column \"2\"\\n'");
        let document: serde_json::Value = serde_json::from_str(&row.document).unwrap();
        assert_eq!(document["id"], row.key.as_str());
        assert_eq!(document["cur_text"], "'column \"3\"\\n'");
        assert_eq!(document.as_object().map(|members| members.len()), Some(13));
        assert_eq!(digest_of(&document), Some(row.digest));
        let mut other = document;
        other["cur_touched"] = "x".into();
        assert_ne!(digest_of(&other), Some(row.digest));
        assert_eq!(digest_of(&serde_json::json!({"id": 1})), None);
    }

    #[test]
    fn broken_lines_are_named() {
        assert_eq!(parse(b""), Err(LineError::Columns { found: 1 }));
        assert_eq!(parse(line(14).as_bytes()), Err(LineError::Columns { found: 14 }));
        assert_eq!(parse(b"a\tb\t\xFF"), Err(LineError::NotUtf8 { at: 4 }));
        let long = format!("{}\t{}", "k".repeat(200), line(14));
        assert!(matches!(parse(long.as_bytes()), Err(LineError::LongKey { .. })));
        assert_eq!(parse(format!("\0\t{}", line(14)).as_bytes()), Err(LineError::NullInKey));
    }
}
