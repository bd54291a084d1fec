//! The command line: the command and its options.
//!
//! The options of a server are declared once, in `server::config`, for flags and configuration files alike.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use bench::cli::{BenchArgs, ExplainArgs};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use inspect::cli::{CheckArgs, SalvageArgs};
use migrate::cli::MigrateArgs;
use server::OpenMode;
use server::config::{Arity, Config, ConfigError, MISSING, OPTIONS, OptionSpec, Setting, read_file};

use crate::tools::TOOLS;

/// A parsed command line.
#[derive(Debug)]
pub enum Request {
    Version,
    /// Create a data directory.
    Create(Config),
    /// Run a server.
    Serve(Config, OpenMode),
    /// Run a proxy: a server without data.
    Proxy(Config),
    /// Run a benchmark.
    Bench(BenchArgs),
    /// Explain how a server runs a query.
    Explain(ExplainArgs),
    /// Move databases between servers.
    Migrate(MigrateArgs),
    /// Verify a data directory.
    Check(CheckArgs),
    /// Write out the readable rows of a data directory.
    Salvage(SalvageArgs),
    /// Run a tool of the Python package: its name and its arguments.
    Tool(String, Vec<OsString>),
    /// Run as a JavaScript sandbox of a server.
    JsSandbox,
}

/// Why a command line is rejected.
#[derive(Debug)]
pub enum CommandLineError {
    /// It is not valid, or asks for help.
    Usage(clap::Error),
    /// An option has a wrong value.
    Config(ConfigError),
}

impl CommandLineError {
    /// Prints it and returns the exit code. A request for help succeeds.
    pub fn show(self) -> ExitCode {
        match self {
            CommandLineError::Usage(error) => {
                // A closed terminal is no reason to fail differently.
                drop(error.print());
                ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
            }
            CommandLineError::Config(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

impl From<clap::Error> for CommandLineError {
    fn from(error: clap::Error) -> CommandLineError {
        CommandLineError::Usage(error)
    }
}

impl From<ConfigError> for CommandLineError {
    fn from(error: ConfigError) -> CommandLineError {
        CommandLineError::Config(error)
    }
}

/// Parses the arguments of the process, the program's name first.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Request, CommandLineError> {
    let matches = command().try_get_matches_from(words)?;
    match matches.subcommand() {
        None if matches.get_flag("version") => Ok(Request::Version),
        None => Ok(Request::Serve(config(&matches)?, OpenMode::CreateOrOpen)),
        Some(("create", matches)) => Ok(Request::Create(config(matches)?)),
        Some(("serve", matches)) => Ok(Request::Serve(config(matches)?, OpenMode::Open)),
        Some(("bench", matches)) => Ok(Request::Bench(BenchArgs::from_arg_matches(matches)?)),
        Some(("migrate", matches)) => Ok(Request::Migrate(MigrateArgs::from_arg_matches(matches)?)),
        Some(("check", matches)) => Ok(Request::Check(CheckArgs::from_arg_matches(matches)?)),
        Some(("salvage", matches)) => Ok(Request::Salvage(SalvageArgs::from_arg_matches(matches)?)),
        Some(("proxy", matches)) => Ok(Request::Proxy(config(matches)?)),
        Some(("explain", matches)) => Ok(Request::Explain(ExplainArgs::from_arg_matches(matches)?)),
        Some(("js-sandbox", _)) => Ok(Request::JsSandbox),
        Some((tool, matches)) if TOOLS.iter().any(|(known, _)| *known == tool) => {
            let words = matches.get_many::<OsString>("words").into_iter().flatten().cloned();
            Ok(Request::Tool(tool.to_owned(), words.collect()))
        }
        Some((other, _)) => {
            Err(clap::Error::raw(ErrorKind::InvalidSubcommand, format!("no command {other}\n")).into())
        }
    }
}

fn command() -> Command {
    let version =
        Arg::new("version").short('v').long("version").action(ArgAction::SetTrue).help("Print the version");
    // The augmented commands bring their own `about`; one that is set later overrides it.
    let bench = BenchArgs::augment_subcommands(Command::new("bench"))
        .about("Measure a server with published workloads")
        .subcommand_required(true);
    let proxy = Command::new("proxy").about("Join a cluster, hold no data, and answer queries");
    Command::new("rekindle")
        .about("A distributed JSON database that speaks RethinkDB's protocol")
        .after_help(
            "Without a command, rekindle opens or creates ./rekindle_data and serves it.\n\
             `rekindle help COMMAND` shows the options of a command.",
        )
        .disable_version_flag(true)
        .args_conflicts_with_subcommands(true)
        .arg(version)
        .args(server_options())
        .subcommand(Command::new("create").about("Make a data directory").args(options_of_create()))
        .subcommand(Command::new("serve").about("Serve an existing data directory").args(server_options()))
        .subcommand(ExplainArgs::augment_args(Command::new("explain")))
        .subcommand(MigrateArgs::augment_args(Command::new("migrate")))
        .subcommand(CheckArgs::augment_args(Command::new("check")))
        .subcommand(SalvageArgs::augment_args(Command::new("salvage")))
        .subcommand(proxy.args(server_options()))
        .subcommand(Command::new("js-sandbox").about("What r.js runs in").hide(true))
        .subcommand(bench)
        .subcommands(TOOLS.map(|(name, about)| tool(name, about)))
}

/// A command that passes all its arguments to the tool, `--help` included.
fn tool(name: &'static str, about: &'static str) -> Command {
    let words = Arg::new("words").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
    let words = words.value_parser(clap::value_parser!(OsString)).value_name("FLAGS OF THE TOOL");
    Command::new(name).about(about).disable_help_flag(true).arg(words)
}

fn server_options() -> impl Iterator<Item = Arg> {
    let missing = MISSING
        .iter()
        .map(|(name, _)| Arg::new(*name).long(*name).action(ArgAction::Append).num_args(0..=1).hide(true));
    OPTIONS.iter().map(option).chain(missing)
}

/// All options are accepted, so that one command line works for `create` and `serve`. The help only shows the options
/// that a new data directory stores or needs.
fn options_of_create() -> impl Iterator<Item = Arg> {
    const OF_A_FOLDER: [&str; 5] =
        ["directory", "config-file", "server-name", "server-tag", "initial-password"];
    server_options().map(|arg| {
        let is_shown = OF_A_FOLDER.contains(&arg.get_id().as_str());
        arg.hide(!is_shown)
    })
}

fn option(spec: &'static OptionSpec) -> Arg {
    let arg = Arg::new(spec.name).long(spec.name).help(spec.help).help_heading(spec.group);
    let arg = match spec.takes {
        Arity::Nothing => arg.action(ArgAction::SetTrue).overrides_with(spec.name),
        Arity::One(value) | Arity::Many(value) => arg.action(ArgAction::Append).value_name(value),
    };
    match spec.short {
        Some(letter) => arg.short(letter),
        None => arg,
    }
}

/// The flags, then the lines of the configuration file that they name.
fn config(matches: &ArgMatches) -> Result<Config, ConfigError> {
    let mut settings: Vec<Setting> = OPTIONS.iter().flat_map(|spec| settings_of(matches, spec)).collect();
    for (name, _) in MISSING {
        if matches.contains_id(name) {
            let value = matches.get_many::<String>(name).and_then(|mut values| values.next().cloned());
            settings.push(Setting::flag(*name, value));
        }
    }
    let file = matches.get_many::<String>("config-file").and_then(|mut paths| paths.next());
    if let Some(path) = file {
        settings.extend(read_file(Path::new(path))?);
    }
    Config::from_settings(settings)
}

fn settings_of(matches: &ArgMatches, spec: &OptionSpec) -> Vec<Setting> {
    match spec.takes {
        Arity::Nothing if matches.get_flag(spec.name) => vec![Setting::flag(spec.name, None)],
        Arity::Nothing => Vec::new(),
        Arity::One(_) | Arity::Many(_) => {
            let values = matches.get_many::<String>(spec.name).into_iter().flatten();
            values.map(|value| Setting::flag(spec.name, Some(value.clone()))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Request, CommandLineError> {
        read(["rekindle"].into_iter().chain(line.split_whitespace()).map(OsString::from))
    }

    #[track_caller]
    fn refused(line: &str) -> String {
        match words(line).unwrap_err() {
            CommandLineError::Usage(error) => error.to_string(),
            CommandLineError::Config(error) => error.to_string(),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn without_a_command_a_node_is_created_or_opened() {
        let Request::Serve(config, OpenMode::CreateOrOpen) =
            words("-d x -o 3 -t a -t b -c 2 -n bob").unwrap()
        else {
            panic!("another request")
        };
        assert_eq!(config.directory, Path::new("x"));
        assert_eq!((config.driver.port, config.cores), (28018, 2));
        assert_eq!(config.tags(), ["a", "b", "default"]);
        assert_eq!(config.server_name.as_deref(), Some("bob"));
    }

    #[test]
    fn servers_to_join_are_taken_in_their_order() {
        let Request::Serve(config, _) = words("-j a:1 --join b:2").unwrap() else {
            panic!("another request")
        };
        assert_eq!(config.peers.join, ["a:1", "b:2"]);
    }

    #[test]
    fn each_command_has_its_request() {
        assert!(matches!(words("create -d x"), Ok(Request::Create(_))));
        assert!(matches!(words("serve -d x"), Ok(Request::Serve(_, OpenMode::Open))));
        assert!(matches!(words("proxy --join a:1 --canonical-address b"), Ok(Request::Proxy(_))));
        assert!(matches!(words("migrate --from a --only b.c --dry-run"), Ok(Request::Migrate(_))));
        assert!(matches!(words("migrate cut-over --from a --quiet-seconds 1"), Ok(Request::Migrate(_))));
        assert!(matches!(words("migrate check --from a"), Ok(Request::Migrate(_))));
        assert!(matches!(words("check x --json"), Ok(Request::Check(_))));
        assert!(matches!(words("salvage x --to y"), Ok(Request::Salvage(_))));
        assert!(refused("salvage x").contains("--to"));
        assert!(matches!(words("js-sandbox"), Ok(Request::JsSandbox)));
        let Ok(Request::Tool(tool, given)) = words("dump -e test.t --help") else {
            panic!("another request")
        };
        assert_eq!((tool.as_str(), given), ("dump", ["-e", "test.t", "--help"].map(OsString::from).to_vec()));
        assert!(matches!(words("-v"), Ok(Request::Version)));
        assert!(matches!(words("--version"), Ok(Request::Version)));
        assert!(matches!(words("help serve"), Err(CommandLineError::Usage(error)) if error.exit_code() == 0));
    }

    #[test]
    fn help_lists_only_the_options_of_a_command() {
        let help = |line| refused(line);
        assert!(!help("--help").contains("..."), "{}", help("--help"));
        assert!(help("--help").contains("Measure a server"), "{}", help("--help"));
        let create = help("help create");
        assert!(create.contains("--server-tag") && !create.contains("--driver-port"), "{create}");
        assert!(matches!(words("create --insecure --insecure --driver-port 1"), Ok(Request::Create(_))));
    }

    #[test]
    fn a_mistake_is_named() {
        assert!(refused("--driver-prot 1").contains("--driver-port"));
        assert!(refused("--daemon").starts_with("--daemon: not supported: let a service manager"));
        assert!(refused("serve --config-file /no/such/file").contains("/no/such/file"));
        assert!(refused("--no-http-admin=1").contains("--no-http-admin"));
        assert!(refused("frobnicate").contains("frobnicate"));
    }
}
