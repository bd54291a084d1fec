//! The address book: which servers there are and where they may be reached.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use ::io::Files;
use datum::{Array, Datum, Object, Text, json};
use uuid::Uuid;

use super::frame::Damage;
use crate::ServerId;

const VERSION: f64 = 1.0;
/// More places than this are not tried for one server.
const ADDRESSES_MAX: usize = 16;
/// Longest address or name that is believed.
pub(super) const TEXT_BYTES_MAX: usize = 512;
/// More servers than this are no cluster of ours.
const SERVERS_MAX: usize = 4096;

/// What is known of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookEntry {
    /// Its name, for messages.
    pub name: String,
    /// Where it was reached, `host:port`, best first.
    pub addresses: Vec<String>,
    /// When the process began that these addresses are from, in milliseconds since 1970.
    pub started_ms: u64,
    /// Whether it was removed from the cluster for good.
    pub removed: bool,
}

/// All servers known. Its text (docs/formats/link.md) is kept in the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    entries: BTreeMap<ServerId, BookEntry>,
}

impl Book {
    /// The file in the data directory.
    pub const FILE: &str = "servers.json";

    /// The servers, in the order of their ids.
    pub fn entries(&self) -> impl Iterator<Item = (ServerId, &BookEntry)> {
        self.entries.iter().map(|(server, entry)| (*server, entry))
    }

    /// What is known of `server`.
    #[must_use]
    pub fn entry(&self, server: ServerId) -> Option<&BookEntry> {
        self.entries.get(&server)
    }

    /// Whether `server` was removed for good.
    #[must_use]
    pub fn is_removed(&self, server: ServerId) -> bool {
        self.entry(server).is_some_and(|entry| entry.removed)
    }

    /// Reads a book. Fails with what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Book, Damage> {
        let wrong = Damage::Book;
        let Ok(Datum::Object(book)) = json::parse(text) else { return Err(wrong("it is no JSON object")) };
        if book.get("version") != Some(Datum::Number(VERSION)) {
            return Err(wrong("its version is not 1"));
        }
        let Some(Datum::Array(servers)) = book.get("servers") else {
            return Err(wrong("it has no list of servers"));
        };
        if servers.len() > SERVERS_MAX {
            return Err(wrong("it has too many servers"));
        }
        let mut entries = BTreeMap::new();
        for server in servers.iter() {
            let Datum::Object(fields) = server else { return Err(wrong("a server is no object")) };
            let id = uuid_of(fields, "server").ok_or(wrong("a server has no id"))?;
            let entry = BookEntry {
                name: text_of(fields, "name").ok_or(wrong("a server has no name"))?,
                addresses: texts_of(fields, "addresses", ADDRESSES_MAX)
                    .ok_or(wrong("a server has no addresses"))?,
                started_ms: number_of(fields, "started_ms").unwrap_or(0),
                removed: fields.get("removed") == Some(Datum::Bool(true)),
            };
            entries.insert(ServerId(id), entry);
        }
        Ok(Book { entries })
    }

    /// The book as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let servers = self.entries.iter().map(|(server, entry)| {
            object([
                ("server", server.to_string().into()),
                ("name", entry.name.as_str().into()),
                ("addresses", texts(&entry.addresses)),
                ("started_ms", Datum::Number(entry.started_ms as f64)),
                ("removed", Datum::Bool(entry.removed)),
            ])
        });
        let servers = Datum::Array(servers.collect());
        object([("version", Datum::Number(VERSION)), ("servers", servers)]).to_json_string()
    }

    /// Writes `text`, which is a book, into `directory`, whole or not at all, and waits until it is on disk.
    pub fn store(files: &dyn Files, directory: &Path, text: &str) -> io::Result<()> {
        let new = directory.join("servers.json.new");
        match files.remove(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = files.create(&new)?;
        file.append(text.as_bytes())?;
        file.sync_data()?;
        files.rename(&new, &directory.join(Book::FILE))?;
        files.sync_dir(directory)
    }

    /// Takes over what `other` knows better. True if that was anything.
    pub(super) fn merge(&mut self, other: Book) -> bool {
        let mut has_changed = false;
        for (server, entry) in other.entries {
            has_changed |= self.learn(server, entry);
        }
        has_changed
    }

    /// The book without the entry of `server`.
    pub(super) fn without(mut self, server: ServerId) -> Book {
        self.entries.remove(&server);
        self
    }

    /// Takes over hearsay of one server.
    fn learn(&mut self, server: ServerId, entry: BookEntry) -> bool {
        let has_room = self.entries.len() < SERVERS_MAX;
        match self.entries.get_mut(&server) {
            Some(known) if known.removed => false,
            Some(known) if entry.removed => {
                known.removed = true;
                true
            }
            Some(known) if entry.started_ms > known.started_ms => {
                *known = entry;
                true
            }
            // Of one start of a process every place that was seen is worth a try.
            Some(known) if entry.started_ms == known.started_ms => {
                let more: Vec<String> =
                    entry.addresses.into_iter().filter(|new| !known.addresses.contains(new)).collect();
                let room = ADDRESSES_MAX.saturating_sub(known.addresses.len());
                let has_changed = !more.is_empty() && room > 0;
                known.addresses.extend(more.into_iter().take(room));
                has_changed
            }
            Some(_) => false,
            None => {
                if has_room {
                    self.entries.insert(server, entry);
                }
                has_room
            }
        }
    }

    /// What a server says of itself replaces what is known. True if that is new.
    pub(super) fn hear(&mut self, server: ServerId, mut entry: BookEntry) -> bool {
        entry.addresses.truncate(ADDRESSES_MAX);
        match self.entries.get_mut(&server) {
            Some(known) if known.removed || *known == entry => false,
            Some(known) if known.started_ms == entry.started_ms => self.learn(server, entry),
            _ => {
                self.entries.insert(server, entry);
                true
            }
        }
    }

    /// Removes `server` for good. True if it was not before.
    pub(super) fn remove(&mut self, server: ServerId) -> bool {
        let nobody = BookEntry { name: String::new(), addresses: Vec::new(), started_ms: 0, removed: false };
        let entry = self.entries.entry(server).or_insert(nobody);
        !std::mem::replace(&mut entry.removed, true)
    }
}

pub(super) fn object(fields: impl IntoIterator<Item = (&'static str, Datum)>) -> Datum {
    let fields = fields.into_iter().map(|(name, value)| (Text::from_static(name), value));
    Datum::from(fields.collect::<Object>())
}

pub(super) fn texts(list: &[String]) -> Datum {
    Datum::Array(list.iter().map(|text| Datum::from(text.as_str())).collect::<Array>())
}

pub(super) fn text_of(fields: &Object, name: &str) -> Option<String> {
    match fields.get(name)? {
        Datum::String(text) if text.len() <= TEXT_BYTES_MAX => Some(text.to_string()),
        _ => None,
    }
}

pub(super) fn texts_of(fields: &Object, name: &str, most: usize) -> Option<Vec<String>> {
    let Datum::Array(list) = fields.get(name)? else { return None };
    let text = |item: &Datum| match item {
        Datum::String(text) if text.len() <= TEXT_BYTES_MAX => Some(text.to_string()),
        _ => None,
    };
    list.iter().take(most).map(text).collect()
}

pub(super) fn number_of(fields: &Object, name: &str) -> Option<u64> {
    match fields.get(name)? {
        Datum::Number(number) if (0.0..9e15).contains(&number) => Some(number as u64),
        _ => None,
    }
}

pub(super) fn uuid_of(fields: &Object, name: &str) -> Option<Uuid> {
    Uuid::parse_str(&text_of(fields, name)?).ok()
}
