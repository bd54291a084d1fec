//! The flags, and the values that they stand for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use client::Endpoint;
use client::handshake::Login;
use client::transport::TlsSettings;

use crate::error::{InputError, Side};
use crate::only::Only;
use crate::rate::Rate;
use crate::report::Output;
use crate::server::Server;

const DRIVER_PORT: u16 = 28015;

/// Move databases from a RethinkDB or a Rekindle to another one, while both run
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MigrateArgs {
    #[command(subcommand)]
    pub(super) command: Option<MigrateCommand>,
    #[command(flatten)]
    pub(super) run: RunFlags,
}

#[derive(Subcommand, Clone, Debug)]
pub(super) enum MigrateCommand {
    /// Say whether the application may be switched to the target, and end a migration that follows its source
    CutOver(CutOverFlags),
    /// Name the differences from RethinkDB that touch the source's indexes, write hooks and running queries
    Check(CheckFlags),
}

#[derive(Args, Clone, Debug)]
pub(super) struct RunFlags {
    #[command(flatten)]
    pub(super) source: SourceFlags,
    #[command(flatten)]
    pub(super) target: TargetFlags,
    #[command(flatten)]
    pub(super) shared: SharedFlags,
    /// Move only this database or table; may be repeated
    #[arg(long, value_name = "DB[.TABLE]")]
    pub(super) only: Vec<Only>,
    /// The most that is read a second: rows (5000), or bytes with KB, MB or GB (20MB)
    #[arg(long, value_name = "RATE")]
    pub(super) max_rate: Option<Rate>,
    /// List what would be copied, what would not, and why
    #[arg(long, conflicts_with_all = ["follow", "verify"])]
    pub(super) dry_run: bool,
    /// Merge into tables that the target has already: rows of the source replace those with the same key
    #[arg(long)]
    pub(super) into_existing: bool,
    /// JSON object with new passwords of users
    #[arg(long, value_name = "FILE")]
    pub(super) new_passwords: Option<PathBuf>,
    /// Go on with changes after the copy, until `rekindle migrate cut-over`
    #[arg(long)]
    pub(super) follow: bool,
    /// Copy nothing: compare both sides, and name the rows that differ
    #[arg(long, conflicts_with = "follow")]
    pub(super) verify: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct CutOverFlags {
    #[command(flatten)]
    pub(super) source: SourceFlags,
    #[command(flatten)]
    pub(super) target: TargetFlags,
    #[command(flatten)]
    pub(super) shared: SharedFlags,
    /// Seconds without a change at the source before both sides are compared
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(super) quiet_seconds: f64,
    /// Seconds to wait for that
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub(super) wait_seconds: f64,
}

#[derive(Args, Clone, Debug)]
pub(super) struct CheckFlags {
    #[command(flatten)]
    pub(super) source: SourceFlags,
    /// Look only at this database or table; may be repeated
    #[arg(long, value_name = "DB[.TABLE]")]
    pub(super) only: Vec<Only>,
    /// How long running queries are looked at
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(super) watch_seconds: f64,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// The server to read from.
#[derive(Args, Clone, Debug)]
pub(super) struct SourceFlags {
    /// Server to read from; the port is that for drivers [default port: 28015]
    #[arg(long, value_name = "HOST[:PORT]")]
    from: Option<String>,
    /// User at the source
    #[arg(long, default_value = "admin")]
    user: String,
    /// File with the password of that user
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Connect to the source with TLS, and trust the authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate to show to the source
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// The server to write to.
#[derive(Args, Clone, Debug)]
pub(super) struct TargetFlags {
    /// Server to write to
    #[arg(long, value_name = "HOST[:PORT]", default_value = "localhost:28015")]
    to: String,
    /// User at the target
    #[arg(long, default_value = "admin")]
    to_user: String,
    /// File with the password of that user
    #[arg(long, value_name = "FILE")]
    to_password_file: Option<PathBuf>,
    /// Connect to the target with TLS, and trust the authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    to_tls_ca: Option<PathBuf>,
    /// Certificate to show to the target
    #[arg(long, value_name = "FILE", requires = "to_tls_ca", requires = "to_tls_key")]
    to_tls_cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "to_tls_cert")]
    to_tls_key: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct SharedFlags {
    /// Directory in which the progress is kept: an interrupted run goes on from there
    #[arg(long, value_name = "DIR", default_value = "rekindle_migration")]
    pub(super) state: PathBuf,
    /// Connections that read at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) readers: u16,
    /// How long a side may be away before the run ends
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = seconds)]
    pub(super) retry_seconds: f64,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
}

impl SharedFlags {
    pub(super) fn output(&self) -> Output {
        output(self.json)
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.retry_seconds)
    }
}

pub(super) fn output(is_json: bool) -> Output {
    if is_json { Output::Json } else { Output::Lines }
}

impl SourceFlags {
    /// Fails if `--from` is missing or no address, or if a file cannot be used.
    pub(super) fn server(&self, patience: Duration) -> Result<Server, InputError> {
        let from = self.from.as_deref().ok_or_else(|| {
            InputError::new("--from HOST[:PORT] is missing: the server from which databases are moved")
        })?;
        let tls = tls("--tls-ca", &self.tls_ca, &self.tls_cert, &self.tls_key)?;
        let password = password("--password-file", self.password_file.as_deref())?;
        let login = Login { user: self.user.clone(), password };
        let endpoint = endpoint("--from", from, login, tls)?;
        Ok(Server::new(Side::Source, endpoint, patience))
    }
}

impl TargetFlags {
    /// Fails if `--to` is no address, or if a file cannot be used.
    pub(super) fn server(&self, patience: Duration) -> Result<Server, InputError> {
        let tls = tls("--to-tls-ca", &self.to_tls_ca, &self.to_tls_cert, &self.to_tls_key)?;
        let password = password("--to-password-file", self.to_password_file.as_deref())?;
        let login = Login { user: self.to_user.clone(), password };
        let endpoint = endpoint("--to", &self.to, login, tls)?;
        Ok(Server::new(Side::Target, endpoint, patience))
    }
}

fn tls(
    flag: &str,
    authorities: &Option<PathBuf>,
    certificate: &Option<PathBuf>,
    key: &Option<PathBuf>,
) -> Result<Option<TlsSettings>, InputError> {
    let Some(authorities) = authorities else { return Ok(None) };
    let own = certificate.as_deref().zip(key.as_deref());
    TlsSettings::read(authorities, own).map(Some).map_err(|error| InputError::new(format!("{flag}: {error}")))
}

/// The first line of a file.
fn password(flag: &str, file: Option<&Path>) -> Result<String, InputError> {
    let Some(file) = file else { return Ok(String::new()) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| InputError::new(format!("{flag} {}: {error}", file.display())))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// `host`, `host:port`, `[address]:port` or an IPv6 address.
fn endpoint(flag: &str, text: &str, login: Login, tls: Option<TlsSettings>) -> Result<Endpoint, InputError> {
    let bad = || InputError::new(format!("{flag} {text}: give HOST or HOST:PORT"));
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = match port {
        None => DRIVER_PORT,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?,
    };
    match host.is_empty() || host.contains('/') {
        true => Err(bad()),
        false => Ok(Endpoint { host: host.to_owned(), port, login, tls }),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_the_usual_one() {
        let login = || Login { user: "admin".to_owned(), password: String::new() };
        let address = |text: &str| endpoint("--to", text, login(), None).map(|endpoint| endpoint.address());
        assert_eq!(address("db").unwrap(), "db:28015");
        assert_eq!(address("db:1").unwrap(), "db:1");
        assert_eq!(address("[::1]:5").unwrap(), "[::1]:5");
        assert_eq!(address("::1").unwrap(), "[::1]:28015");
        for bad in ["", ":5", "db:0", "db:x", "http://db", "[::1]5"] {
            assert!(address(bad).unwrap_err().to_string().contains("HOST:PORT"), "{bad}");
        }
    }
}
