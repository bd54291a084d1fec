//! `rekindle restore`: runs `rethinkdb-restore`, and sets the write hooks of the restored tables that the tool leaves out: it sets a
//! hook only after it has made secondary indexes of the table.

mod child;
mod password;
mod words;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use client::Endpoint;
use client::handshake::Login;
use client::transport::{TlsFilesError, TlsSettings};
use migrate::catalog::{Hook, HookOutcome};
use migrate::dump::{DumpError, read_hooks, set_hooks};
use migrate::error::{MigrateError, Side};
use migrate::queries::TableName;
use migrate::server::Server;
use tempfile::NamedTempFile;

use super::{ToolError, exec_tool, failed};
use words::{RestoreOptions, Words, read_words};

const TOOL: &str = "restore";
/// A server that is away longer, by an election say, is given up.
const OUTAGE_MAX: Duration = Duration::from_secs(60);

/// The tool's exit code for wrong words and for a server that it cannot connect to.
const USAGE_ERROR: u8 = 2;

/// Why a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("the archive on standard input cannot be stored in {folder} (--temp-dir): {source}")]
    Standard { folder: PathBuf, source: io::Error },
    #[error("the password cannot be read from the terminal: {0}")]
    Password(io::Error),
    /// The tool has succeeded.
    #[error(
        "the tables are restored, but the write hooks of those without secondary indexes are not set: {0}"
    )]
    Unread(#[from] DumpError),
    #[error(
        "the tables are restored, but the write hooks of those without secondary indexes are not set: rekindle does not know the \
         option {0} of this rethinkdb-restore"
    )]
    UnknownOption(String),
    #[error("the tables are restored, but not all write hooks of {tables} are set: {why}")]
    Hooks { tables: String, why: HookError },
}

/// Why hooks of restored tables were not set.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error(transparent)]
    Server(#[from] MigrateError),
    #[error("--tls-cert: {0}")]
    Tls(#[from] TlsFilesError),
    #[error("--password-file {path}: {source}")]
    PasswordFile { path: PathBuf, source: io::Error },
}

/// Runs the tool with these words, then sets hooks. Returns the exit code: the tool's if it fails, 1 if the server refuses a hook.
/// Fails if the tool cannot be run, or if hooks cannot be read or set.
pub fn restore(words: &[OsString]) -> Result<ExitCode, RestoreError> {
    let options = match read_words(words, |name| std::env::var(name).ok()) {
        Words::Restore(options) => options,
        Words::Tool => return Err(exec_tool(TOOL, words).into()),
        Words::Unknown(option) => {
            return match run_tool(words, words)? {
                0 => Err(RestoreError::UnknownOption(option)),
                code => Ok(ExitCode::from(code)),
            };
        }
    };
    let spooled = (options.archive == "-").then(|| spool(&options)).transpose()?;
    let archive = spooled.as_ref().map_or(Path::new(&options.archive), NamedTempFile::path);
    let hooks = read_hooks(archive, &options.only);
    let has_hooks = hooks.as_ref().is_ok_and(|hooks| !hooks.is_empty());
    let password = match options.asks_password && options.password_file.is_none() && has_hooks {
        true => Some(ask(&options).map_err(RestoreError::Password)?),
        false => None,
    };
    let own_words = match (&spooled, &password) {
        (None, None) => words.to_vec(),
        _ => options.with(archive, password.as_ref().map(|(_, file)| file.path())),
    };
    let code = run_tool(&own_words, words)?;
    drop(spooled);
    // The file of the password goes away before anything else can end this process.
    let password = password.map(|(text, _)| text);
    match (code, hooks) {
        (0, Ok(hooks)) => finish(&options, password, &hooks),
        (0, Err(error)) => Err(error.into()),
        (code, hooks) => {
            if let Ok(hooks) = hooks.as_deref()
                && code != USAGE_ERROR
                && !hooks.is_empty()
            {
                eprintln!(
                    "write hooks of tables without secondary indexes were not set, as rethinkdb-restore failed ({}): drop the tables \
                     that it made, mend the cause, and run it again; --no-secondary-indexes leaves out an index that is refused",
                    names(hooks)
                );
            }
            Ok(ExitCode::from(code))
        }
    }
}

/// `words` are the arguments of the tool, `given` those of the user, which messages repeat.
fn run_tool(words: &[OsString], given: &[OsString]) -> Result<u8, ToolError> {
    child::run(Command::new(format!("rethinkdb-{TOOL}")).args(words))
        .map_err(|cause| failed(TOOL, given, cause))
}

/// Stores standard input, as both the tool and this program read the archive.
fn spool(options: &RestoreOptions) -> Result<NamedTempFile, RestoreError> {
    let folder = options.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
    let store = || {
        let mut file = NamedTempFile::new_in(&folder)?;
        io::copy(&mut io::stdin().lock(), &mut file)?;
        file.flush()?;
        Ok(file)
    };
    store().map_err(|source| RestoreError::Standard { folder: folder.clone(), source })
}

/// The password, and a file of it for the tool, which only this user can read.
fn ask(options: &RestoreOptions) -> io::Result<(String, NamedTempFile)> {
    let password = password::ask(&format!("Password for `{}`: ", options.user))?;
    let mut file = NamedTempFile::new()?;
    file.write_all(password.as_bytes())?;
    file.flush()?;
    Ok((password, file))
}

/// Sets the hooks and says so.
fn finish(
    options: &RestoreOptions,
    password: Option<String>,
    hooks: &[(TableName, Hook)],
) -> Result<ExitCode, RestoreError> {
    if hooks.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let outcomes = server(options, password)
        .and_then(|server| Ok(set_hooks(&server, hooks)?))
        .map_err(|why| RestoreError::Hooks { tables: names(hooks), why })?;
    let mut code = ExitCode::SUCCESS;
    for (table, outcome) in outcomes {
        match outcome {
            HookOutcome::Set if options.is_quiet => {}
            HookOutcome::Set => println!("  write hook of {table}: set"),
            HookOutcome::Refused(why) => {
                eprintln!(
                    "error: the server refused the write hook of {table}, whose rows are restored: {why}"
                );
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn server(options: &RestoreOptions, password: Option<String>) -> Result<Server, HookError> {
    let password = match (&options.password_file, password) {
        (Some(path), _) => std::fs::read_to_string(path)
            .map(|text| text.trim_end_matches('\n').to_owned())
            .map_err(|source| HookError::PasswordFile { path: path.clone(), source })?,
        (None, password) => password.unwrap_or_default(),
    };
    let tls = options.authorities.as_deref().map(|file| TlsSettings::read(file, None)).transpose()?;
    let login = Login { user: options.user.clone(), password };
    let endpoint = Endpoint { host: options.host.clone(), port: options.port, login, tls };
    Ok(Server::new(Side::Target, endpoint, OUTAGE_MAX))
}

fn names(hooks: &[(TableName, Hook)]) -> String {
    hooks.iter().map(|(table, _)| table.to_string()).collect::<Vec<_>>().join(", ")
}
