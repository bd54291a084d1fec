//! The address book: the servers of the cluster and the addresses where they may be reached.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use ::io::Files;
use datum::{Array, Datum, Object, Text, json};
use uuid::Uuid;

use super::frame::Damage;
use crate::ServerId;

const VERSION: f64 = 1.0;
/// The most addresses that are kept for one server.
const ADDRESSES_MAX: usize = 16;
/// Longest address or name that is accepted.
pub(super) const TEXT_BYTES_MAX: usize = 512;
/// The most servers in an address book.
const SERVERS_MAX: usize = 4096;

/// The entry of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressBookEntry {
    /// The server's name, for messages.
    pub name: String,
    /// The addresses where it was reached, `host:port`, best first.
    pub addresses: Vec<String>,
    /// When the process began that had these addresses, in milliseconds since 1970.
    pub started_ms: u64,
    /// Whether it was removed from the cluster permanently.
    pub removed: bool,
}

/// All known servers. The text form (docs/formats/link.md) is stored in the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressBook {
    entries: BTreeMap<ServerId, AddressBookEntry>,
}

impl AddressBook {
    /// The name of the file in the data directory.
    pub const FILE: &str = "servers.json";

    /// All entries, in the order of server ids.
    pub fn entries(&self) -> impl Iterator<Item = (ServerId, &AddressBookEntry)> {
        self.entries.iter().map(|(server, entry)| (*server, entry))
    }

    #[must_use]
    pub fn entry(&self, server: ServerId) -> Option<&AddressBookEntry> {
        self.entries.get(&server)
    }

    /// Whether `server` was removed permanently.
    #[must_use]
    pub fn is_removed(&self, server: ServerId) -> bool {
        self.entry(server).is_some_and(|entry| entry.removed)
    }

    /// Parses an address book. Fails with the first error found.
    pub fn parse(text: &[u8]) -> Result<AddressBook, Damage> {
        let wrong = Damage::Book;
        let Ok(Datum::Object(address_book)) = json::parse(text) else {
            return Err(wrong("it is no JSON object"));
        };
        if address_book.get("version") != Some(Datum::Number(VERSION)) {
            return Err(wrong("its version is not 1"));
        }
        let Some(Datum::Array(servers)) = address_book.get("servers") else {
            return Err(wrong("it has no list of servers"));
        };
        if servers.len() > SERVERS_MAX {
            return Err(wrong("it has too many servers"));
        }
        let mut entries = BTreeMap::new();
        for server in servers.iter() {
            let Datum::Object(fields) = server else { return Err(wrong("a server is no object")) };
            let id = uuid_of(fields, "server").ok_or(wrong("a server has no id"))?;
            let entry = AddressBookEntry {
                name: text_of(fields, "name").ok_or(wrong("a server has no name"))?,
                addresses: texts_of(fields, "addresses", ADDRESSES_MAX)
                    .ok_or(wrong("a server has no addresses"))?,
                started_ms: number_of(fields, "started_ms").unwrap_or(0),
                removed: fields.get("removed") == Some(Datum::Bool(true)),
            };
            entries.insert(ServerId(id), entry);
        }
        Ok(AddressBook { entries })
    }

    /// The text form of the address book.
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

    /// Writes `text`, the text form of an address book, into `directory` atomically, and waits until it is on disk.
    pub fn store(files: &dyn Files, directory: &Path, text: &str) -> io::Result<()> {
        let new = directory.join("servers.json.new");
        match files.remove(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = files.create(&new)?;
        file.append(text.as_bytes())?;
        file.sync_data()?;
        files.rename(&new, &directory.join(AddressBook::FILE))?;
        files.sync_dir(directory)
    }

    /// Takes over all newer entries of `other`. True if any entry changed.
    pub(super) fn merge(&mut self, other: AddressBook) -> bool {
        let mut has_changed = false;
        for (server, entry) in other.entries {
            has_changed |= self.learn(server, entry);
        }
        has_changed
    }

    /// The address book without the entry of `server`.
    pub(super) fn without(mut self, server: ServerId) -> AddressBook {
        self.entries.remove(&server);
        self
    }

    /// Takes over an entry that another server has sent, if it is newer. True if that changed anything.
    fn learn(&mut self, server: ServerId, entry: AddressBookEntry) -> bool {
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
            // Both entries are of the same start of the process: keep the addresses of both.
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

    /// Takes over the entry that a server has sent about itself. True if that changed anything.
    pub(super) fn update_own_entry(&mut self, server: ServerId, mut entry: AddressBookEntry) -> bool {
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

    /// Marks `server` as permanently removed. True if it was not before.
    pub(super) fn remove(&mut self, server: ServerId) -> bool {
        let unknown =
            AddressBookEntry { name: String::new(), addresses: Vec::new(), started_ms: 0, removed: false };
        let entry = self.entries.entry(server).or_insert(unknown);
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
