//! All options: the names on the command line and in the file, and their descriptions.

/// The values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    Nothing,
    /// One value, shown under this name.
    One(&'static str),
    /// One value each time the option is given.
    Many(&'static str),
}

/// The names, values and help of one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Without dashes.
    pub name: &'static str,
    /// The one-letter form.
    pub short: Option<char>,
    /// The values it takes.
    pub takes: Arity,
    /// The heading in the help.
    pub group: &'static str,
    /// One line for the help. For [`ACCEPTED`] options, why they have no effect.
    pub help: &'static str,
}

const fn option(name: &'static str, takes: Arity, group: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, short: None, takes, group, help }
}

const fn short(letter: char, spec: OptionSpec) -> OptionSpec {
    OptionSpec { short: Some(letter), ..spec }
}

use Arity::{Many, Nothing, One};

const FILES: &str = "Files";
const SERVER: &str = "Server";
const NETWORK: &str = "Network";
const QUERIES: &str = "Queries";
const MACHINE: &str = "Machine";
/// Options of RethinkDB without effect here; their help text says why.
pub const ACCEPTED: &str = "Accepted, without effect";

/// The options of `create` and `serve`, in the order `help` shows them.
pub const OPTIONS: &[OptionSpec] = &[
    short('d', option("directory", One("PATH"), FILES, "Data directory [default: rekindle_data]")),
    option(
        "config-file",
        One("PATH"),
        FILES,
        "Read options from a file: key=value, # comments, the names of these flags",
    ),
    option("log-file", One("PATH"), FILES, "Log file [default: log_file in the data directory]"),
    option("pid-file", One("PATH"), FILES, "Keep the process id in this file while the server runs"),
    short(
        'n',
        option(
            "server-name",
            One("NAME"),
            SERVER,
            "Name of this server [default: the host's name and three letters]",
        ),
    ),
    short(
        't',
        option(
            "server-tag",
            Many("TAG"),
            SERVER,
            "Tag of this server; may be given several times [default: default]",
        ),
    ),
    option(
        "initial-password",
        One("auto|PASSWORD"),
        SERVER,
        "Password of admin, if it has none yet; auto makes one up and prints it",
    ),
    option(
        "bind",
        Many("all|ADDRESS"),
        NETWORK,
        "Also listen on this address; only this machine can connect otherwise",
    ),
    option("bind-driver", Many("all|ADDRESS"), NETWORK, "Like --bind, for drivers alone"),
    option("bind-http", Many("all|ADDRESS"), NETWORK, "Like --bind, for HTTP alone"),
    option("bind-cluster", Many("all|ADDRESS"), NETWORK, "Like --bind, for other servers alone"),
    option("no-default-bind", Nothing, NETWORK, "Do not listen on the loopback addresses"),
    option("insecure", Nothing, NETWORK, "Let other machines connect although admin has no password"),
    option("driver-port", One("PORT"), NETWORK, "Port for drivers [default: 28015]"),
    option("cluster-port", One("PORT"), NETWORK, "Port for other servers [default: 29015]"),
    option("http-port", One("PORT"), NETWORK, "Port for HTTP [default: 8080]"),
    short('o', option("port-offset", One("NUMBER"), NETWORK, "Added to every port")),
    option("no-http-admin", Nothing, NETWORK, "No HTTP port"),
    option(
        "http-allowed-host",
        Many("NAME"),
        NETWORK,
        "Also answer under this name on the HTTP port, such as that of a proxy; may be given several times",
    ),
    option(
        "web-static-directory",
        One("PATH"),
        NETWORK,
        "Serve the console's files from this folder [default: those in the program]",
    ),
    short(
        'j',
        option(
            "join",
            Many("HOST[:PORT]"),
            NETWORK,
            "Cluster port of a server to join or to find again; may be given several times",
        ),
    ),
    option(
        "canonical-address",
        Many("HOST[:PORT]"),
        NETWORK,
        "Address at which other servers reach this one; may be given several times [default: those it listens on]",
    ),
    option(
        "cluster-reconnect-timeout",
        One("SECONDS"),
        NETWORK,
        "Time to keep dialing a lost server [default: 86400]",
    ),
    option("cluster-tls-key", One("PATH"), NETWORK, "Private key for links to other servers, PEM"),
    option("cluster-tls-cert", One("PATH"), NETWORK, "Certificate that goes with it, PEM"),
    option("cluster-tls-ca", One("PATH"), NETWORK, "Certificates whose signature other servers need, PEM"),
    option("driver-tls-key", One("PATH"), NETWORK, "Private key for connections of drivers, PEM"),
    option("driver-tls-cert", One("PATH"), NETWORK, "Certificate that goes with it, PEM"),
    option("driver-tls-ca", One("PATH"), NETWORK, "Certificates whose signature drivers need, PEM"),
    option("http-tls-key", One("PATH"), NETWORK, "Private key for the HTTP port, PEM"),
    option("http-tls-cert", One("PATH"), NETWORK, "Certificate that goes with it, PEM"),
    option(
        "http-allow-private",
        Nothing,
        QUERIES,
        "Let r.http reach addresses that are not public: this machine, private networks",
    ),
    option("enable-js", Nothing, QUERIES, "Let queries run JavaScript with r.js, in separate processes"),
    option(
        "cache-size",
        One("MB|auto"),
        MACHINE,
        "Memory for caches [default: half of the free memory, less 1024 MB]",
    ),
    option(
        "memory-limit",
        One("MB|auto"),
        MACHINE,
        "Memory for everything, caches included; queries that need more fail [default: 80% of the machine's]",
    ),
    option(
        "changefeed-retention",
        One("TIME,SIZE"),
        MACHINE,
        "Changes kept for changefeeds that continue after a token: how long, how many at most [default: 24h,1024MB]",
    ),
    option(
        "background-check",
        One("TIME,SIZE|off"),
        MACHINE,
        "Checks of the stored data while the server runs: the pause between two, bytes a second [default: 7d,4MB]",
    ),
    short('c', option("cores", One("NUMBER"), MACHINE, "Processor cores to use [default: all]")),
    option("io-threads", One("NUMBER"), ACCEPTED, "each thread does its own disk operations"),
    option("no-update-check", Nothing, ACCEPTED, "there is no update check"),
    option("direct-io", Nothing, ACCEPTED, "files are read and written through the system's cache"),
    option("no-direct-io", Nothing, ACCEPTED, "files are read and written through the system's cache"),
    option(
        "runuser",
        One("NAME"),
        ACCEPTED,
        "the server runs as the user who starts it; refused if that is root",
    ),
    option(
        "rungroup",
        One("NAME"),
        ACCEPTED,
        "the server runs as the user who starts it; refused if that is root",
    ),
    option("join-delay", One("SECONDS"), ACCEPTED, "a server joins as soon as it can"),
    option("client-port", One("PORT"), ACCEPTED, "the system chooses the ports of outgoing connections"),
    option("tls-min-protocol", One("VERSION"), ACCEPTED, "TLS 1.2 and 1.3 are spoken; refused for more"),
    option("tls-ciphers", One("LIST"), ACCEPTED, TLS),
    option("tls-ecdh-curve", One("NAME"), ACCEPTED, TLS),
    option("tls-dhparams", One("PATH"), ACCEPTED, TLS),
];

const TLS: &str = "TLS 1.2 and 1.3 are spoken with their good ciphers, always";

/// Options of RethinkDB that are missing here and must not be ignored, and what to do instead.
pub const MISSING: &[(&str, &str)] = &[
    ("daemon", "let a service manager such as systemd start the server"),
    ("reql-http-proxy", "r.http connects directly; leave it out"),
];

pub(super) fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.name == name)
}

/// The option with the most similar name, for the error about a mistyped one.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let near = OPTIONS.iter().map(|spec| (distance(name, spec.name), spec.name));
    near.min().filter(|(distance, _)| *distance <= 3).map(|(_, name)| name)
}

/// The Levenshtein distance: letters to change, insert or remove.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, other_letter) in row.iter_mut().skip(1).zip(&other) {
            let changed = diagonal + usize::from(letter != *other_letter);
            diagonal = *cell;
            left = changed.min(left + 1).min(diagonal + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_its_option() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(nearest("driverport"), Some("driver-port"));
        assert_eq!(nearest("cache_size"), Some("cache-size"));
        assert_eq!(nearest("colour"), None);
    }

    #[test]
    fn names_and_letters_are_unique() {
        let mut names: Vec<&str> =
            OPTIONS.iter().map(|spec| spec.name).chain(MISSING.iter().map(|(n, _)| *n)).collect();
        let mut letters: Vec<char> = OPTIONS.iter().filter_map(|spec| spec.short).collect();
        let (name_count, letter_count) = (names.len(), letters.len());
        names.sort_unstable();
        names.dedup();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!((names.len(), letters.len()), (name_count, letter_count));
    }
}
