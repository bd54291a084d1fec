//! Reads the descriptions of tables (`DB/TABLE.info`) in an archive of `rethinkdb-dump`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde_json::Value;
use tar::Archive;

use crate::catalog::Hook;
use crate::only::{Only, has_table};
use crate::queries::TableName;

/// Descriptions of tables have some kilobytes; more than this is not read into memory.
const INFO_BYTES_MAX: u64 = 64 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why the hooks of a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("{path} cannot be read as a tar archive, with or without gzip: {source}")]
    Archive { path: PathBuf, source: io::Error },
    #[error("{path}: the description of table {table} cannot be read: {why}")]
    Info { path: PathBuf, table: TableName, why: String },
}

/// The write hooks of the tables in the archive at `path` that `only` names (all tables if it is empty), in the order of their names.
///
/// Reads the whole archive. Fails if it cannot be read, or if the description of one of these tables cannot.
pub fn read_hooks(path: &Path, only: &[Only]) -> Result<Vec<(TableName, Hook)>, DumpError> {
    let failed = |source| DumpError::Archive { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let is_gzip = file.fill_buf().map_err(failed)?.starts_with(&GZIP_MAGIC);
    let reader: Box<dyn Read> = match is_gzip {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let tables = tables(reader, only).map_err(failed)?;
    let mut hooks = Vec::new();
    for (table, info) in tables {
        match hook(&info) {
            Ok(hook) => hooks.extend(hook.map(|hook| (table, hook))),
            Err(why) => return Err(DumpError::Info { path: path.to_owned(), table, why }),
        }
    }
    Ok(hooks)
}

/// The descriptions of the wanted tables that have rows in the archive, by name. Other tables are not restored.
fn tables(reader: impl Read, only: &[Only]) -> io::Result<BTreeMap<TableName, Vec<u8>>> {
    let mut archive = Archive::new(reader);
    let (mut infos, mut with_rows) = (BTreeMap::new(), BTreeSet::new());
    for entry in archive.entries()? {
        let mut entry = entry?;
        let Some((table, part)) =
            entry.header().entry_type().is_file().then(|| part_of(&entry.path().ok()?)).flatten()
        else {
            continue;
        };
        if !has_table(only, &table.db, &table.table) {
            continue;
        }
        match part {
            Part::Rows => drop(with_rows.insert(table)),
            Part::Info => drop(infos.insert(table, read_info(&mut entry)?)),
        }
    }
    infos.retain(|table, _| with_rows.contains(table));
    Ok(infos)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Info,
    Rows,
}

/// The table that the file `DUMP/DB/TABLE.info`, `.json` or `.csv` belongs to.
fn part_of(path: &Path) -> Option<(TableName, Part)> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_str()?),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    let [_, db, file] = names[..] else { return None };
    let (table, extension) = file.rsplit_once('.')?;
    let part = match extension {
        "info" => Part::Info,
        "json" | "csv" => Part::Rows,
        _ => return None,
    };
    Some((TableName::new(db, table), part))
}

fn read_info(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = entry.take(INFO_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match read as u64 > INFO_BYTES_MAX {
        true => Err(io::Error::other("the description of a table has more than 64 MB")),
        false => Ok(bytes),
    }
}

/// The hook of a table by its description. Drivers before 2.4 write none.
fn hook(info: &[u8]) -> Result<Option<Hook>, String> {
    let info: Value = serde_json::from_slice(info).map_err(|error| error.to_string())?;
    Ok(Hook::parse(&info["write_hook"]))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const INFO: &str = r#"{"write_hook":{"function":{"$reql_type$":"BINARY","data":"AA=="},"query":"q"}}"#;

    fn archive(files: &[(&str, &str)], compressed: bool) -> tempfile::NamedTempFile {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        let bytes = builder.into_inner().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        match compressed {
            true => {
                let mut encoder = GzEncoder::new(file.as_file_mut(), Compression::fast());
                encoder.write_all(&bytes).unwrap();
                encoder.finish().unwrap();
            }
            false => file.write_all(&bytes).unwrap(),
        }
        file
    }

    fn names(file: &tempfile::NamedTempFile, only: &[&str]) -> Vec<String> {
        let only: Vec<Only> = only.iter().map(|text| text.parse().unwrap()).collect();
        let hooks = read_hooks(file.path(), &only).unwrap();
        hooks.iter().map(|(table, _)| table.to_string()).collect()
    }

    #[test]
    fn hooks_of_the_restored_tables_are_read() {
        let long = format!("dump/b/{}.info", "x".repeat(120));
        let files = [
            ("dump/a/t.info", INFO),
            ("dump/a/t.json", "[]"),
            ("dump/a/plain.info", r#"{"write_hook":null}"#),
            ("dump/a/plain.json", "[]"),
            ("dump/a/old.info", "{}"),
            ("dump/a/old.json", "[]"),
            ("dump/a/without_rows.info", INFO),
            (&long, INFO),
            (&long.replace("info", "csv"), ""),
            ("dump/other.info", INFO),
        ];
        for compressed in [false, true] {
            let file = archive(&files, compressed);
            let of_b = format!("b.{}", "x".repeat(120));
            assert_eq!(names(&file, &[]), ["a.t", of_b.as_str()]);
            assert_eq!(names(&file, &["b"]), [of_b.as_str()]);
            assert_eq!(names(&file, &["a.t", "a.plain"]), ["a.t"]);
        }
        let (_, hook) = read_hooks(archive(&files, true).path(), &[]).unwrap().swap_remove(0);
        assert_eq!((hook.base64().as_str(), hook.query.as_str()), ("AA==", "q"));
    }

    #[test]
    fn names_outside_of_the_dump_belong_to_no_table() {
        let table = |path: &str| part_of(Path::new(path)).map(|(table, _)| table.to_string());
        assert_eq!(table("./dump/a/b.info").as_deref(), Some("a.b"));
        assert_eq!(table("/dump/a/b.csv").as_deref(), Some("a.b"));
        for other in ["dump/../a/b.info", "a/b.info", "dump/a/c/b.info", "dump/a/b.txt", "dump/a/b"] {
            assert_eq!(table(other), None, "{other}");
        }
    }

    #[test]
    fn a_damaged_dump_is_named() {
        let said = |file: &tempfile::NamedTempFile| read_hooks(file.path(), &[]).unwrap_err().to_string();
        let bad_info = archive(&[("dump/a/t.info", "{"), ("dump/a/t.json", "[]")], true);
        assert!(said(&bad_info).contains("the description of table a.t cannot be read"));
        let file = archive(&[("dump/a/t.info", INFO), ("dump/a/t.json", "[]")], true);
        file.as_file().set_len(60).unwrap();
        assert!(said(&file).contains("cannot be read as a tar archive"), "{}", said(&file));
        let mut text = tempfile::NamedTempFile::new().unwrap();
        text.write_all(&[b'x'; 2000]).unwrap();
        assert!(said(&text).contains("cannot be read as a tar archive"), "{}", said(&text));
        assert!(read_hooks(Path::new("/no/such/file"), &[]).is_err());
    }
}
