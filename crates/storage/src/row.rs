//! Decodes stored rows; an error names the damaged row.

use bytes::Bytes;
use datum::{Object, PrimaryKey, row};

use crate::{ReadError, TableId};

/// The row in `bytes`, kept as text, its checksum verified.
pub(crate) fn decode(table: TableId, key: &PrimaryKey, bytes: Bytes) -> Result<Object, ReadError> {
    row::decode(bytes).map_err(|cause| ReadError::Corrupt { table, key: key.clone(), cause })
}
