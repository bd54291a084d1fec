//! Parses and validates the values of options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use super::memory::total_bytes;
use super::setting::{ConfigError, Setting};
use super::{CACHE_BYTES_MIN, CacheSize, InitialPassword, MemoryLimit};

/// Both loopback addresses.
pub(super) const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The wildcard addresses.
pub(super) const ALL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

const NAME_CHARACTERS_MAX: usize = 63;

pub(super) fn text(setting: &Setting) -> &str {
    setting.value.as_deref().unwrap_or_default()
}

pub(super) fn number<N: FromStr + PartialOrd>(
    setting: &Setting,
    least: N,
    what: &str,
) -> Result<N, ConfigError> {
    let number = text(setting).parse::<N>().ok().filter(|number| *number >= least);
    number.ok_or_else(|| setting.wrong(format!("expected {what}")))
}

pub(super) fn addresses(setting: &Setting) -> Result<Vec<IpAddr>, ConfigError> {
    let value = text(setting);
    if value == "all" {
        return Ok(ALL.to_vec());
    }
    if let Ok(address) = value.parse() {
        return Ok(vec![address]);
    }
    let found =
        (value, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect::<Vec<_>>());
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(setting.wrong("expected `all` or an address of this machine, such as 192.168.0.2 or ::1")),
    }
}

/// Parses `host`, `host:port` or `[ipv6]:port`; returns `host:port`.
pub(super) fn place(setting: &Setting, port_default: u16) -> Result<String, ConfigError> {
    let value = text(setting);
    if let Ok(address) = value.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port_default).to_string());
    }
    let (host, port) = match value.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)),
        None => (value, Some(port_default)),
    };
    let is_name = !host.is_empty() && !host.contains(|letter: char| letter.is_whitespace() || letter == '/');
    let is_legal = is_name && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    match port {
        Some(port) if is_legal => Ok(format!("{host}:{port}")),
        _ => Err(setting.wrong("expected a host, or host:port, such as db1.example.com or 10.0.0.1:29015")),
    }
}

/// Validates the name of a host, without a port; `*.` at its beginning stands for one label.
pub(super) fn host(setting: &Setting) -> Result<String, ConfigError> {
    let name = text(setting);
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !labels.is_empty() && labels.chars().all(legal) {
        return Ok(name.to_owned());
    }
    Err(setting.wrong("expected the name of a host without a port, such as db.example.com or *.example.com"))
}

/// Validates the name of a server or a tag.
pub(super) fn name(setting: &Setting) -> Result<String, ConfigError> {
    let name = text(setting);
    let legal = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if name.chars().all(legal) && name.len() <= NAME_CHARACTERS_MAX {
        return Ok(name.to_owned());
    }
    Err(setting.wrong(format!("use A-Z, a-z, 0-9, _ and - only, at most {NAME_CHARACTERS_MAX} characters")))
}

pub(super) fn cache(setting: &Setting) -> Result<CacheSize, ConfigError> {
    if text(setting) == "auto" {
        return Ok(CacheSize::Auto);
    }
    let least = CACHE_BYTES_MIN >> 20;
    let megabytes = number(setting, 0, "a number of megabytes or `auto`")?;
    if megabytes < least {
        return Err(setting.wrong(format!("a cache needs at least {least} megabytes")));
    }
    let most = total_bytes().unwrap_or(u64::MAX) >> 20;
    if megabytes > most {
        return Err(setting.wrong(format!("this machine has {most} megabytes; the number is in megabytes")));
    }
    Ok(CacheSize::Megabytes(megabytes))
}

pub(super) fn memory_limit(setting: &Setting) -> Result<MemoryLimit, ConfigError> {
    if text(setting) == "auto" {
        return Ok(MemoryLimit::Auto);
    }
    let megabytes = number(setting, 1, "a number of megabytes or `auto`")?;
    let most = total_bytes().unwrap_or(u64::MAX) >> 20;
    if megabytes > most {
        return Err(setting.wrong(format!("this machine has {most} megabytes; the number is in megabytes")));
    }
    Ok(MemoryLimit::Megabytes(megabytes))
}

pub(super) fn password(setting: &Setting) -> InitialPassword {
    match text(setting) {
        "auto" => InitialPassword::Auto,
        password => InitialPassword::Given(password.to_owned()),
    }
}
