//! The servers that this one knows: their addresses, their names, and which of them were removed.

use std::collections::BTreeMap;

use io::Nanos;

use super::output::{Effect, Output};
use super::peers::Peers;
use super::session::Origin;
use crate::ServerId;
use crate::link::address_book::{AddressBook, AddressBookEntry};
use crate::link::dialer::Dialer;
use crate::link::hello::Hello;

/// The address book, and the names of servers.
pub(super) struct KnownServers {
    pub(super) address_book: AddressBook,
    /// The current names of servers. They take precedence over the names in hellos, which may be older.
    names: BTreeMap<ServerId, String>,
}

impl KnownServers {
    pub(super) fn new(address_book: AddressBook) -> KnownServers {
        KnownServers { address_book, names: BTreeMap::new() }
    }

    /// Has `dialer` dial all servers but `own`.
    pub(super) fn add_to(&self, dialer: &mut Dialer, own: ServerId, now: Nanos) {
        for (server, entry) in present(&self.address_book, own) {
            for address in &entry.addresses {
                dialer.server_at(address, server, now);
            }
        }
    }

    /// The text form of the address book.
    pub(super) fn text(&self) -> String {
        self.address_book.to_text()
    }

    /// Whether `server` was removed permanently.
    pub(super) fn is_removed(&self, server: ServerId) -> bool {
        self.address_book.is_removed(server)
    }

    /// All servers that were removed permanently.
    pub(super) fn removed(&self) -> impl Iterator<Item = ServerId> {
        self.address_book.entries().filter(|(_, entry)| entry.removed).map(|(server, _)| server)
    }

    /// Name and id of `server`, for messages.
    pub(super) fn display(&self, server: ServerId) -> String {
        let in_address_book = || self.address_book.entry(server).map(|entry| &entry.name);
        let known = self.names.get(&server).or_else(in_address_book).map(String::as_str).unwrap_or_default();
        format!("\"{known}\" {server}")
    }

    /// The current name of the server that has sent `hello`.
    pub(super) fn name_of<'a>(&'a self, hello: &'a Hello) -> &'a str {
        self.names.get(&hello.server).unwrap_or(&hello.name)
    }

    /// Sets a server's name, after it was renamed or the catalog was read.
    pub(super) fn set_name(&mut self, server: ServerId, name: String) {
        self.names.insert(server, name);
    }

    /// Marks a server as removed permanently. True if it was not marked before.
    pub(super) fn remove(&mut self, server: ServerId) -> bool {
        self.address_book.remove(server)
    }

    /// Enters a server's own addresses, and the one where it was reached, into the address book. Leaves out proxies:
    /// a proxy dials all servers itself, and has a new identity after each start. True if the address book changed.
    pub(super) fn learn(&mut self, hello: &Hello, origin: &Origin, dialer: &mut Dialer, now: Nanos) -> bool {
        if hello.is_proxy {
            return false;
        }
        let mut addresses = hello.addresses.clone();
        let seen = match origin {
            Origin::Dialed(address) => Some(address.clone()),
            Origin::Accepted(from) => from.rsplit_once(':').map(|(host, _)| format!("{host}:{}", hello.port)),
        };
        addresses.extend(seen.filter(|seen| !hello.addresses.contains(seen)));
        for address in &addresses {
            dialer.server_at(address, hello.server, now);
        }
        let entry = AddressBookEntry {
            name: hello.name.clone(),
            addresses,
            started_ms: hello.started_ms,
            removed: false,
        };
        self.address_book.update_own_entry(hello.server, entry)
    }

    /// Takes over the newer entries of an address book that another server has sent, without the entry of `own`. True
    /// if the address book changed.
    pub(super) fn merge(
        &mut self,
        received: AddressBook,
        own: ServerId,
        dialer: &mut Dialer,
        now: Nanos,
    ) -> bool {
        let others: Vec<_> =
            present(&received, own).map(|(server, entry)| (server, entry.addresses.clone())).collect();
        if !self.address_book.merge(received.without(own)) {
            return false;
        }
        for (server, addresses) in others {
            for address in addresses {
                dialer.server_at(&address, server, now);
            }
        }
        true
    }

    /// Stores the address book, which has changed, and sends it to the linked servers.
    pub(super) fn publish(&self, peers: &mut Peers, output: &mut Output) {
        let text = self.text();
        peers.send_address_book(&text);
        output.add(Effect::StoreAddressBook(text));
    }
}

/// The servers of an address book that were not removed, without `own`.
fn present(address_book: &AddressBook, own: ServerId) -> impl Iterator<Item = (ServerId, &AddressBookEntry)> {
    address_book.entries().filter(move |(server, entry)| *server != own && !entry.removed)
}
