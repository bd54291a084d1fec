//! The journal of the changes to a directory: a file of records, appended in the order of the changes.
//!
//! A record is its length without these four bytes, a byte for its kind, and its fields; numbers are little-endian, a path
//! has its length before it. A record is written before the change that it describes, so that a killed process leaves at
//! most one record too many; a sync is recorded when it has returned. Paths are relative to the directory.

/// One change, or one sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A new empty file.
    Create {
        path: String,
    },
    /// The file at `path` was opened; later records name it by its inode.
    Open {
        path: String,
        inode: u64,
    },
    /// `data` is written at `offset`.
    Write {
        inode: u64,
        offset: u64,
        data: Vec<u8>,
    },
    /// The file gets this length.
    Resize {
        inode: u64,
        len: u64,
    },
    /// The file is written through a buffer of libc, whose writes are not recorded. None of its bytes is ever durable.
    Buffered {
        inode: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    /// A further name of a file.
    Link {
        from: String,
        to: String,
    },
    /// The name of a file goes away.
    Unlink {
        path: String,
    },
    CreateDir {
        path: String,
    },
    RemoveDir {
        path: String,
    },
    /// The previous change failed.
    Failed,
    /// The previous write wrote only so many bytes.
    Short {
        len: u64,
    },
    /// A sync of a file has returned that began when the journal had `upto` bytes.
    Synced {
        inode: u64,
        upto: u64,
    },
    /// The same of a directory.
    DirSynced {
        path: String,
        upto: u64,
    },
    /// The process ended itself because of a kind of change that cannot be recorded.
    Refused {
        what: String,
    },
}

/// Appends the bytes of a record.
pub fn encode(record: &Record, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.extend([0; 4]);
    match record {
        Record::Create { path } => put(bytes, 1, &[], &[path]),
        Record::Open { path, inode } => put(bytes, 2, &[*inode], &[path]),
        Record::Write { inode, offset, data } => {
            put(bytes, 3, &[*inode, *offset], &[]);
            bytes.extend_from_slice(data);
        }
        Record::Resize { inode, len } => put(bytes, 4, &[*inode, *len], &[]),
        Record::Buffered { inode } => put(bytes, 5, &[*inode], &[]),
        Record::Rename { from, to } => put(bytes, 6, &[], &[from, to]),
        Record::Link { from, to } => put(bytes, 7, &[], &[from, to]),
        Record::Unlink { path } => put(bytes, 8, &[], &[path]),
        Record::CreateDir { path } => put(bytes, 9, &[], &[path]),
        Record::RemoveDir { path } => put(bytes, 10, &[], &[path]),
        Record::Failed => put(bytes, 11, &[], &[]),
        Record::Short { len } => put(bytes, 12, &[*len], &[]),
        Record::Synced { inode, upto } => put(bytes, 13, &[*inode, *upto], &[]),
        Record::DirSynced { path, upto } => put(bytes, 14, &[*upto], &[path]),
        Record::Refused { what } => put(bytes, 15, &[], &[what]),
    }
    let len = (bytes.len() - start - 4) as u32;
    bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

fn put(bytes: &mut Vec<u8>, kind: u8, numbers: &[u64], texts: &[&String]) {
    bytes.push(kind);
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    for text in texts {
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the journal has no record at byte {at}")]
pub struct DecodeError {
    at: u64,
}

/// The whole records at the beginning of a journal, each with its position, and the length of all of them. The process
/// may have been killed while it wrote the last one.
pub fn decode(journal: &[u8]) -> Result<(Vec<(u64, Record)>, usize), DecodeError> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(body) = body(&journal[at..]) {
        let record = read(body).ok_or(DecodeError { at: at as u64 })?;
        records.push((at as u64, record));
        at += 4 + body.len();
    }
    Ok((records, at))
}

fn body(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..u32::from_le_bytes(*len) as usize)
}

fn read(body: &[u8]) -> Option<Record> {
    let (kind, mut rest) = body.split_first()?;
    let fields = &mut rest;
    Some(match kind {
        1 => Record::Create { path: text(fields)? },
        2 => {
            let inode = number(fields)?;
            Record::Open { path: text(fields)?, inode }
        }
        3 => Record::Write { inode: number(fields)?, offset: number(fields)?, data: fields.to_vec() },
        4 => Record::Resize { inode: number(fields)?, len: number(fields)? },
        5 => Record::Buffered { inode: number(fields)? },
        6 => Record::Rename { from: text(fields)?, to: text(fields)? },
        7 => Record::Link { from: text(fields)?, to: text(fields)? },
        8 => Record::Unlink { path: text(fields)? },
        9 => Record::CreateDir { path: text(fields)? },
        10 => Record::RemoveDir { path: text(fields)? },
        11 => Record::Failed,
        12 => Record::Short { len: number(fields)? },
        13 => Record::Synced { inode: number(fields)?, upto: number(fields)? },
        14 => {
            let upto = number(fields)?;
            Record::DirSynced { path: text(fields)?, upto }
        }
        15 => Record::Refused { what: text(fields)? },
        _ => return None,
    })
}

fn number(fields: &mut &[u8]) -> Option<u64> {
    let (number, rest) = fields.split_first_chunk::<8>()?;
    *fields = rest;
    Some(u64::from_le_bytes(*number))
}

fn text(fields: &mut &[u8]) -> Option<String> {
    let (len, rest) = fields.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *fields = rest;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_a_torn_last_one_is_left_out() {
        let (path, text) = (|| "a/b".to_owned(), || "c".to_owned());
        let records = [
            Record::Create { path: path() },
            Record::Open { path: path(), inode: 7 },
            Record::Write { inode: 7, offset: 3, data: b"bytes".to_vec() },
            Record::Resize { inode: 7, len: 2 },
            Record::Buffered { inode: 7 },
            Record::Rename { from: path(), to: text() },
            Record::Link { from: path(), to: text() },
            Record::Unlink { path: path() },
            Record::CreateDir { path: path() },
            Record::RemoveDir { path: path() },
            Record::Failed,
            Record::Short { len: 1 },
            Record::Synced { inode: 7, upto: 99 },
            Record::DirSynced { path: String::new(), upto: 98 },
            Record::Refused { what: text() },
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| encode(record, &mut bytes));
        let (read, len) = decode(&bytes).unwrap();
        assert_eq!(len, bytes.len());
        assert!(read.iter().map(|(_, record)| record).eq(&records));
        let (torn, len) = decode(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(torn.len(), records.len() - 1);
        assert_eq!(len as u64, read[records.len() - 1].0);
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        assert!(decode(&[1, 0, 0, 0, 77]).is_err());
    }
}
