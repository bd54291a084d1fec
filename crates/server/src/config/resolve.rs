//! Builds a whole configuration from single options.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use rustix::process::{Uid, geteuid};

use super::background_check::{self, BackgroundCheck};
use super::options::{ACCEPTED, OPTIONS, OptionSpec};
use super::retention::{self, FeedRetention};
use super::setting::{ConfigError, Settings};
use super::value::{self, LOOPBACK};
use super::{CacheSize, Config, HttpReach, MemoryLimit, Peers, Service, ServiceTls, TlsFiles};

/// The default data directory.
pub(crate) const DIRECTORY: &str = "rekindle_data";
const DRIVER_PORT: u16 = 28015;
const CLUSTER_PORT: u16 = 29015;
const HTTP_PORT: u16 = 8080;
/// Each core gets a worker thread for drivers and a thread for scans.
const CORES_MAX: usize = 1024;
const RECONNECT_SECONDS: u64 = 86_400;

pub(super) fn resolve(given: Settings) -> Result<Config, ConfigError> {
    let http = service(&given, "http", HTTP_PORT)?;
    let cores = match given.one("cores") {
        Some(setting) => match value::number(setting, 1, "a number of cores, at least 1")? {
            cores if cores > CORES_MAX => {
                return Err(setting.wrong(format!("more than {CORES_MAX} cores cannot be used")));
            }
            cores => cores,
        },
        None => available_parallelism().map_or(1, usize::from),
    };
    if let Some(setting) = given.one("io-threads") {
        value::number(setting, 1_usize, "a number of threads, at least 1")?;
    }
    let driver = service(&given, "driver", DRIVER_PORT)?;
    let cluster = service(&given, "cluster", CLUSTER_PORT)?;
    let http = (!given.flag("no-http-admin")).then_some(http);
    check_ports(&given, &[("driver", Some(&driver)), ("cluster", Some(&cluster)), ("http", http.as_ref())])?;
    check_user(&given, geteuid())?;
    if let Some(setting) = given.one("tls-min-protocol").filter(|setting| value::text(setting) == "TLSv1.3") {
        return Err(setting.wrong("not supported: TLS 1.2 is spoken, too, with good ciphers only"));
    }
    Ok(Config {
        directory: path(&given, "directory").unwrap_or_else(|| PathBuf::from(DIRECTORY)),
        driver,
        peers: peers(&given, cluster.port)?,
        cluster,
        http,
        cache: given.one("cache-size").map_or(Ok(CacheSize::Auto), value::cache)?,
        memory: given.one("memory-limit").map_or(Ok(MemoryLimit::Auto), value::memory_limit)?,
        feed_retention: given
            .one("changefeed-retention")
            .map_or(Ok(FeedRetention::default()), retention::parse)?,
        background_check: given
            .one("background-check")
            .map_or(Ok(Some(BackgroundCheck::default())), background_check::parse)?,
        server_name: given.one("server-name").map(value::name).transpose()?,
        server_tags: given.many("server-tag").map(value::name).collect::<Result<_, _>>()?,
        initial_password: given.one("initial-password").map(value::password),
        log_file: path(&given, "log-file"),
        pid_file: path(&given, "pid-file"),
        cores,
        insecure: given.flag("insecure"),
        is_proxy: false,
        web_static_directory: path(&given, "web-static-directory"),
        http_allowed_hosts: given.many("http-allowed-host").map(value::host).collect::<Result<_, _>>()?,
        http_reach: match given.flag("http-allow-private") {
            true => HttpReach::Everything,
            false => HttpReach::Public,
        },
        enable_js: given.flag("enable-js"),
        notes: notes(&given),
    })
}

fn peers(given: &Settings, cluster_port: u16) -> Result<Peers, ConfigError> {
    let seconds = match given.one("cluster-reconnect-timeout") {
        Some(setting) => value::number(setting, 0, "a number of seconds")?,
        None => RECONNECT_SECONDS,
    };
    let join = given.many("join").map(|setting| value::place(setting, CLUSTER_PORT));
    let join = join.collect::<Result<Vec<_>, _>>()?;
    let canonical = given.many("canonical-address").map(|setting| value::place(setting, cluster_port));
    Ok(Peers {
        join,
        canonical_addresses: canonical.collect::<Result<_, _>>()?,
        reconnect_timeout: Duration::from_secs(seconds),
        tls: cluster_tls(given)?,
    })
}

/// Requires all three files or none.
fn cluster_tls(given: &Settings) -> Result<Option<TlsFiles>, ConfigError> {
    let names = ["cluster-tls-key", "cluster-tls-cert", "cluster-tls-ca"];
    let [key, certificate, authorities] = names.map(|name| path(given, name));
    let Some(setting) = names.iter().find_map(|name| given.one(name)) else { return Ok(None) };
    match (key, certificate, authorities) {
        (Some(key), Some(certificate), Some(authorities)) => {
            Ok(Some(TlsFiles { key, certificate, authorities }))
        }
        _ => Err(setting
            .wrong("TLS between servers needs --cluster-tls-key, --cluster-tls-cert and --cluster-tls-ca")),
    }
}

fn path(given: &Settings, name: &str) -> Option<PathBuf> {
    given.one(name).map(|setting| Path::new(value::text(setting)).to_owned())
}

/// The addresses and the port of a service. `--bind-X` replaces `--bind`; the loopback addresses are added to either.
fn service(given: &Settings, name: &str, port: u16) -> Result<Service, ConfigError> {
    let own = format!("bind-{name}");
    let bind = if given.flag(&own) { own.as_str() } else { "bind" };
    let mut addresses: Vec<IpAddr> =
        if given.flag("no-default-bind") { Vec::new() } else { LOOPBACK.to_vec() };
    for setting in given.many(bind) {
        addresses.extend(value::addresses(setting)?);
    }
    if addresses.is_empty() {
        let what = format!("nothing is left to listen on; add --bind or --bind-{name}");
        return Err(ConfigError { place: "--no-default-bind".to_owned(), what });
    }
    Ok(Service {
        addresses: without_covered(&addresses),
        port: offset_port(given, &format!("{name}-port"), port)?,
        tls: if name == "cluster" { None } else { service_tls(given, name)? },
    })
}

/// Requires a key and its certificate, or neither; authorities only with both.
fn service_tls(given: &Settings, service: &str) -> Result<Option<ServiceTls>, ConfigError> {
    let names = ["key", "cert", "ca"].map(|part| format!("{service}-tls-{part}"));
    let [key, certificate, authorities] = [&names[0], &names[1], &names[2]].map(|name| path(given, name));
    let Some(setting) = names.iter().find_map(|name| given.one(name)) else { return Ok(None) };
    match (key, certificate) {
        (Some(key), Some(certificate)) => Ok(Some(ServiceTls { key, certificate, authorities })),
        _ => Err(setting.wrong(format!("TLS needs both --{service}-tls-key and --{service}-tls-cert"))),
    }
}

/// Removes duplicates, and addresses that a wildcard address of the same family covers.
fn without_covered(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let covered = |address: &IpAddr| {
        !address.is_unspecified()
            && addresses.iter().any(|other| other.is_unspecified() && other.is_ipv4() == address.is_ipv4())
    };
    let mut kept: Vec<IpAddr> = Vec::new();
    for address in addresses {
        if !covered(address) && !kept.contains(address) {
            kept.push(*address);
        }
    }
    kept
}

fn offset_port(given: &Settings, name: &str, default: u16) -> Result<u16, ConfigError> {
    let setting = given.one(name);
    let port: u16 =
        setting.map_or(Ok(default), |setting| value::number(setting, 0, "a port between 0 and 65535"))?;
    let Some(offset) = given.one("port-offset") else { return Ok(port) };
    let added: u16 = value::number(offset, 0, "a number between 0 and 65535")?;
    if port == 0 {
        return Ok(0);
    }
    port.checked_add(added).ok_or_else(|| {
        offset
            .wrong(format!("{name} would be {}; the last port is 65535", u32::from(port) + u32::from(added)))
    })
}

/// Rejects two services with the same port of the same address.
fn check_ports(given: &Settings, services: &[(&str, Option<&Service>)]) -> Result<(), ConfigError> {
    let services: Vec<_> = services.iter().filter_map(|(name, service)| Some((*name, (*service)?))).collect();
    for (nth, (name, service)) in services.iter().enumerate() {
        let same = |(_, other): &&(&str, &Service)| {
            let meet =
                |address: &IpAddr| other.addresses.iter().any(|other| addresses_overlap(*address, *other));
            other.port == service.port && service.port != 0 && service.addresses.iter().any(meet)
        };
        let Some((other, _)) = services[..nth].iter().find(same) else { continue };
        let what = format!(
            "--{other}-port and --{name}-port are both {}; each service needs a port of its own",
            service.port
        );
        let setting = [name, other].into_iter().find_map(|name| given.one(&format!("{name}-port")));
        let place = setting.map_or_else(|| format!("--{name}-port {}", service.port), ToString::to_string);
        return Err(ConfigError { place, what });
    }
    Ok(())
}

fn addresses_overlap(one: IpAddr, other: IpAddr) -> bool {
    let covers = |one: IpAddr, other: IpAddr| one.is_unspecified() && one.is_ipv4() == other.is_ipv4();
    one == other || covers(one, other) || covers(other, one)
}

/// Rejects `--runuser` and `--rungroup` for a server that root starts: ignoring them would leave it running as root.
/// For other users ignoring them is harmless.
fn check_user(given: &Settings, user: Uid) -> Result<(), ConfigError> {
    let names = ["runuser", "rungroup"];
    let other =
        names.iter().filter_map(|name| given.one(name)).find(|setting| value::text(setting) != "root");
    match other.filter(|_| user.is_root()) {
        None => Ok(()),
        Some(setting) => Err(setting.wrong(
            "not supported: the server would run as root; start it as that user, with a service manager such as \
             systemd (User=) or with `setpriv` or `runuser`",
        )),
    }
}

fn notes(given: &Settings) -> Vec<String> {
    let accepted = OPTIONS.iter().filter(|spec| spec.group == ACCEPTED);
    let note = |spec: &OptionSpec| {
        Some(format!("{}: the option has no effect: {}", given.one(spec.name)?, spec.help))
    };
    accepted.filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{InitialPassword, Origin, Setting};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn flags(flags: &[(&str, &str)]) -> Vec<Setting> {
        let value = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        flags.iter().map(|(name, text)| Setting::flag(*name, value(text))).collect()
    }

    fn config(given: &[(&str, &str)]) -> Config {
        Config::from_settings(flags(given)).unwrap()
    }

    #[track_caller]
    fn refused(given: &[(&str, &str)], expected: &str) {
        assert_eq!(Config::from_settings(flags(given)).unwrap_err().to_string(), expected);
    }

    #[test]
    fn without_options_a_node_serves_this_machine() {
        let config = config(&[]);
        assert_eq!(config.directory, Path::new("rekindle_data"));
        assert_eq!(config.driver, Service { addresses: LOOPBACK.to_vec(), port: 28015, tls: None });
        assert!(config.driver.is_local() && config.cluster.is_local());
        assert_eq!((config.cluster.port, config.http.as_ref().unwrap().port), (29015, 8080));
        assert_eq!(config.tags(), ["default"]);
    }

    #[test]
    fn every_address_covers_the_loopback() {
        let config = config(&[("bind", "all")]);
        assert_eq!(config.driver.addresses, value::ALL);
        assert!(!config.driver.is_local());
    }

    #[test]
    fn one_service_may_be_bound_alone() {
        let config = config(&[("bind", "10.0.0.1"), ("bind-http", "10.0.0.2"), ("no-default-bind", "")]);
        assert_eq!(config.driver.addresses, [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))]);
        assert_eq!(config.http.unwrap().addresses, [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))]);
        refused(
            &[("no-default-bind", "")],
            "--no-default-bind: nothing is left to listen on; add --bind or --bind-http",
        );
    }

    #[test]
    fn a_mapped_loopback_is_local() {
        let address = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert!(Service { addresses: vec![address], port: 1, tls: None }.is_local());
        let everywhere = vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        assert!(!Service { addresses: everywhere, port: 1, tls: None }.is_local());
    }

    #[test]
    fn the_offset_moves_every_port_but_a_free_one() {
        let config = config(&[("port-offset", "5"), ("http-port", "0"), ("driver-port", "1000")]);
        assert_eq!((config.driver.port, config.cluster.port, config.http.unwrap().port), (1005, 29020, 0));
        refused(
            &[("port-offset", "40000")],
            "--port-offset 40000: driver-port would be 68015; the last port is 65535",
        );
    }

    #[test]
    fn a_canonical_address_gets_the_cluster_port_if_it_has_none() {
        let given = [
            ("canonical-address", "db.example"),
            ("canonical-address", "10.0.0.1:5"),
            ("canonical-address", "::1"),
            ("canonical-address", "[::1]:7"),
            ("port-offset", "3"),
        ];
        let expected = ["db.example:29018", "10.0.0.1:5", "[::1]:29018", "[::1]:7"];
        assert_eq!(config(&given).peers.canonical_addresses, expected);
        refused(
            &[("canonical-address", "a:b")],
            "--canonical-address a:b: expected a host, or host:port, such as db1.example.com or 10.0.0.1:29015",
        );
    }

    #[test]
    fn tls_with_clients_needs_a_key_and_a_certificate() {
        let given = [("driver-tls-key", "k"), ("driver-tls-cert", "c")];
        let tls = config(&given).driver.tls.unwrap();
        assert_eq!((tls.key, tls.certificate, tls.authorities), ("k".into(), "c".into(), None));
        let checked = [("http-tls-key", "k"), ("http-tls-cert", "c")];
        assert!(config(&checked).http.unwrap().tls.is_some());
        refused(
            &[("driver-tls-ca", "a"), ("driver-tls-cert", "c")],
            "--driver-tls-cert c: TLS needs both --driver-tls-key and --driver-tls-cert",
        );
    }

    #[test]
    fn tls_between_servers_needs_all_of_its_files() {
        let given = [("cluster-tls-key", "k"), ("cluster-tls-cert", "c"), ("cluster-tls-ca", "a")];
        let tls = config(&given).peers.tls.unwrap();
        assert_eq!((tls.key, tls.certificate, tls.authorities), ("k".into(), "c".into(), "a".into()));
        refused(
            &given[..2],
            "--cluster-tls-key k: TLS between servers needs --cluster-tls-key, --cluster-tls-cert and --cluster-tls-ca",
        );
    }

    #[test]
    fn the_error_for_a_wrong_value_names_the_expected_form() {
        refused(&[("driver-port", "x")], "--driver-port x: expected a port between 0 and 65535");
        refused(&[("driver-port", "65536")], "--driver-port 65536: expected a port between 0 and 65535");
        refused(&[("cores", "9999")], "--cores 9999: more than 1024 cores cannot be used");
        refused(&[("cores", "0")], "--cores 0: expected a number of cores, at least 1");
        refused(&[("cache-size", "5")], "--cache-size 5: a cache needs at least 100 megabytes");
        refused(&[("cache-size", "big")], "--cache-size big: expected a number of megabytes or `auto`");
        refused(
            &[("server-name", "a b")],
            "--server-name a b: use A-Z, a-z, 0-9, _ and - only, at most 63 characters",
        );
        refused(&[("directory", "")], "--directory: needs a value: PATH");
        refused(
            &[("http-port", "1"), ("http-port", "2")],
            "--http-port 2: already given (--http-port 1); keep one",
        );
        let help = "expected a host, or host:port, such as db1.example.com or 10.0.0.1:29015";
        refused(&[("join", "a:b")], &format!("--join a:b: {help}"));
    }

    #[test]
    fn flags_win_over_the_file() {
        let origin = Origin::File { path: "a.conf".into(), line: 2 };
        let line = |name: &str, value: &str| Setting {
            name: name.into(),
            value: Some(value.into()),
            origin: origin.clone(),
        };
        let mut settings = flags(&[("http-port", "1"), ("server-tag", "x")]);
        settings.extend([line("http-port", "2"), line("driver-port", "3"), line("server-tag", "y")]);
        let config = Config::from_settings(settings).unwrap();
        assert_eq!((config.http.unwrap().port, config.driver.port), (1, 3));
        assert_eq!(config.server_tags, ["x"]);
        let error = Config::from_settings(vec![line("drvier-port", "3")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.conf, line 2: drvier-port=3: there is no such option; did you mean `driver-port`?"
        );
    }

    #[test]
    fn cache_size_auto_leaves_a_gigabyte() {
        assert_eq!(CacheSize::Auto.bytes(5 << 30), 2 << 30);
        assert_eq!(CacheSize::Auto.bytes(1 << 30), 100 << 20);
        assert_eq!(config(&[("cache-size", "2048")]).cache.bytes(0), 2 << 30);
    }

    #[test]
    fn an_option_without_effect_is_noted() {
        let config = config(&[("no-update-check", ""), ("io-threads", "64"), ("direct-io", "")]);
        assert_eq!(
            config.notes,
            [
                "--io-threads 64: the option has no effect: each thread does its own disk operations",
                "--no-update-check: the option has no effect: there is no update check",
                "--direct-io: the option has no effect: files are read and written through the system's cache",
            ]
        );
    }

    #[test]
    fn a_server_always_has_the_tag_default() {
        assert_eq!(config(&[("server-tag", "a"), ("server-tag", "b")]).tags(), ["a", "b", "default"]);
        assert_eq!(config(&[("server-tag", "default"), ("server-tag", "b")]).tags(), ["default", "b"]);
        let proxy = Config { is_proxy: true, ..config(&[("server-tag", "a")]) };
        assert!(proxy.tags().is_empty());
    }

    #[test]
    fn two_services_with_one_port_are_named() {
        refused(
            &[("driver-port", "7"), ("http-port", "7")],
            "--http-port 7: --driver-port and --http-port are both 7; each service needs a port of its own",
        );
        refused(
            &[("driver-port", "29015")],
            "--driver-port 29015: --driver-port and --cluster-port are both 29015; each service needs a port of its own",
        );
        config(&[("driver-port", "0"), ("http-port", "0"), ("cluster-port", "0")]);
        config(&[("driver-port", "7"), ("http-port", "7"), ("no-http-admin", "")]);
        let apart =
            [("driver-port", "7"), ("http-port", "7"), ("no-default-bind", ""), ("bind-cluster", "::1")];
        config(&[&apart[..], &[("bind-driver", "127.0.0.1"), ("bind-http", "::1")]].concat());
        let everywhere = [("bind-driver", "all"), ("bind-http", "::1")];
        assert!(Config::from_settings(flags(&[&apart[..], &everywhere].concat())).is_err());
    }

    #[test]
    fn another_user_is_a_note_unless_it_would_be_root() {
        let settings = |name: &str, user: &str| Settings::new(flags(&[(name, user)])).unwrap();
        let anybody = Uid::from_raw(1000);
        assert!(check_user(&settings("runuser", "rethinkdb"), anybody).is_ok());
        assert!(check_user(&settings("runuser", "root"), Uid::ROOT).is_ok());
        let refusal = check_user(&settings("rungroup", "rethinkdb"), Uid::ROOT).unwrap_err().to_string();
        assert!(
            refusal.starts_with("--rungroup rethinkdb: not supported: the server would run as root"),
            "{refusal}"
        );
    }

    #[test]
    fn a_tls_version_that_is_spoken_is_a_note() {
        assert_eq!(config(&[("tls-min-protocol", "TLSv1.2")]).notes.len(), 1);
        refused(
            &[("tls-min-protocol", "TLSv1.3")],
            "--tls-min-protocol TLSv1.3: not supported: TLS 1.2 is spoken, too, with good ciphers only",
        );
    }

    #[test]
    fn a_password_is_never_shown() {
        let config = config(&[("initial-password", "secret")]);
        assert_eq!(config.initial_password, Some(InitialPassword::Given("secret".into())));
        assert!(!format!("{config:?}").contains("secret"));
        assert!(!Setting::flag("initial-password", Some("secret".into())).to_string().contains("secret"));
    }
}
