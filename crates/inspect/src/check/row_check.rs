//! One row: its checksum, its decompression, and its key.

use bytes::Bytes;
use datum::{Object, PrimaryKey, row};
use storage::CompressedEngine;

/// The row in a pair of the engine. Fails with the reason why it is damaged; `primary_key` is the field with its key.
pub(crate) fn read_row(
    rows: &CompressedEngine,
    key: &[u8],
    primary: &PrimaryKey,
    value: &[u8],
    primary_key: &str,
) -> Result<(Bytes, Object), String> {
    let stored = rows.decode(key, Bytes::copy_from_slice(value)).map_err(|cause| cause.to_string())?;
    let bytes = stored.ok_or_else(|| "its dictionary is missing".to_owned())?;
    let object = row::decode(bytes.clone()).map_err(|cause| format!("row {primary} is damaged: {cause}"))?;
    match object.get(primary_key).map(|value| PrimaryKey::encode(&value)) {
        Some(Ok(found)) if found == *primary => Ok((bytes, object)),
        _ => Err(format!("row {primary} is stored under a key that is not its own")),
    }
}
