//! The command line of `rethinkdb-restore`, read as Python's `optparse` reads it: which archive, which tables, and how to connect.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use migrate::only::Only;

/// An option of the tool.
struct OptionSpec {
    name: &'static str,
    short: Option<char>,
    takes_value: bool,
}

const fn option(name: &'static str, short: Option<char>, takes_value: bool) -> OptionSpec {
    OptionSpec { name, short, takes_value }
}

/// All options of `rethinkdb-restore`, release 2.4.10.
const OPTIONS: [OptionSpec; 21] = [
    option("help", Some('h'), false),
    option("version", None, false),
    option("quiet", Some('q'), false),
    option("debug", None, false),
    option("password", Some('p'), false),
    option("hard-durability", None, false),
    option("force", None, false),
    option("no-secondary-indexes", None, false),
    option("import", Some('i'), true),
    option("temp-dir", None, true),
    option("clients", None, true),
    option("writers-per-table", None, true),
    option("batch-size", None, true),
    option("shards", None, true),
    option("replicas", None, true),
    option("connect", Some('c'), true),
    option("driver-port", None, true),
    option("host-name", None, true),
    option("user", Some('u'), true),
    option("password-file", None, true),
    option("tls-cert", None, true),
];

/// The words after `rekindle restore`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Words {
    Restore(Box<RestoreOptions>),
    /// A request for help, or words that the tool refuses, with its own message.
    Tool,
    /// The tool may know the option, or be able to read the value: it is named.
    Unknown(String),
}

/// The options that say which tables are restored, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreOptions {
    /// `-` for standard input.
    pub archive: OsString,
    /// The tables that are restored: all if it is empty.
    pub only: Vec<Only>,
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password_file: Option<PathBuf>,
    /// The file of `--tls-cert`.
    pub authorities: Option<PathBuf>,
    pub temp_dir: Option<PathBuf>,
    /// `-p`: the password is asked for at the terminal.
    pub asks_password: bool,
    pub is_quiet: bool,
    /// All options but `-p`, in the form `--name` and a value.
    others: Vec<OsString>,
}

/// Reads the words; `environment` gives the value of a variable.
pub fn read_words(words: &[OsString], environment: impl Fn(&str) -> Option<String>) -> Words {
    let mut options = RestoreOptions {
        archive: OsString::new(),
        only: Vec::new(),
        host: environment("RETHINKDB_HOSTNAME").unwrap_or_else(|| "localhost".to_owned()),
        port: environment("RETHINKDB_DRIVER_PORT").and_then(|text| text.parse().ok()).unwrap_or(28015),
        user: environment("RETHINKDB_USER").unwrap_or_else(|| "admin".to_owned()),
        password_file: None,
        authorities: None,
        temp_dir: None,
        asks_password: false,
        is_quiet: false,
        others: Vec::new(),
    };
    match options.take_all(words) {
        Ok(()) => Words::Restore(Box::new(options)),
        Err(other) => other,
    }
}

impl RestoreOptions {
    /// The same command line with another archive, and, if there is one, a file of the password instead of `-p`.
    pub fn with(&self, archive: &Path, password_file: Option<&Path>) -> Vec<OsString> {
        let mut words = self.others.clone();
        match password_file {
            Some(file) => words.extend(["--password-file".into(), file.into()]),
            None if self.asks_password => words.push("--password".into()),
            None => {}
        }
        words.extend(["--".into(), archive.into()]);
        words
    }

    fn take_all(&mut self, words: &[OsString]) -> Result<(), Words> {
        let mut words = words.iter();
        let mut archives: Vec<&OsString> = Vec::new();
        while let Some(word) = words.next() {
            match Word::of(word)? {
                Word::Argument => archives.push(word),
                Word::End => archives.extend(words.by_ref()),
                Word::Long(text) => {
                    let (name, inline) = match text.split_once('=') {
                        Some((name, value)) => (name, Some(value)),
                        None => (text, None),
                    };
                    let spec = by_name(name)?;
                    let value = match (spec.takes_value, inline) {
                        (false, Some(_)) => return Err(Words::Tool),
                        (false, None) => None,
                        (true, Some(value)) => Some(OsString::from(value)),
                        (true, None) => Some(words.next().ok_or(Words::Tool)?.clone()),
                    };
                    self.take(spec, value)?;
                }
                Word::Short(letters) => self.take_cluster(letters, &mut words)?,
            }
        }
        match archives[..] {
            [archive] => self.archive = archive.clone(),
            _ => return Err(Words::Tool),
        }
        Ok(())
    }

    /// `-qc HOST`, `-qcHOST`: the last letter may take a value.
    fn take_cluster<'a>(
        &mut self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), Words> {
        for (at, letter) in letters.char_indices() {
            let is_it = |spec: &&OptionSpec| spec.short == Some(letter);
            let Some(spec) = OPTIONS.iter().find(is_it) else {
                return Err(Words::Unknown(format!("-{letter}")));
            };
            if !spec.takes_value {
                self.take(spec, None)?;
                continue;
            }
            let value = match &letters[at + letter.len_utf8()..] {
                "" => words.next().ok_or(Words::Tool)?.clone(),
                rest => rest.into(),
            };
            return self.take(spec, Some(value));
        }
        Ok(())
    }

    fn take(&mut self, spec: &OptionSpec, value: Option<OsString>) -> Result<(), Words> {
        let value = value.as_deref();
        match spec.name {
            "help" | "version" => return Err(Words::Tool),
            "password" => {
                self.asks_password = true;
                return Ok(());
            }
            "quiet" => self.is_quiet = true,
            "import" => self.only.push(text(spec, value)?.parse().map_err(|_| Words::Tool)?),
            "temp-dir" => self.temp_dir = value.map(PathBuf::from),
            "connect" => self.connect(text(spec, value)?)?,
            "driver-port" => self.port = port(text(spec, value)?)?,
            "host-name" => self.host = text(spec, value)?.to_owned(),
            "user" => self.user = text(spec, value)?.to_owned(),
            "password-file" => self.password_file = value.map(PathBuf::from),
            "tls-cert" => self.authorities = value.map(PathBuf::from),
            _ => {}
        }
        self.others.push(format!("--{}", spec.name).into());
        self.others.extend(value.map(OsStr::to_owned));
        Ok(())
    }

    /// `HOST` or `HOST:PORT`.
    fn connect(&mut self, text: &str) -> Result<(), Words> {
        let text = text.trim();
        let host = match text.split_once(':') {
            None => text,
            Some((host, digits)) => {
                self.port = port(digits)?;
                host
            }
        };
        self.host = host.to_owned();
        Ok(())
    }
}

/// The kinds of words.
enum Word<'a> {
    Argument,
    /// `--`: all that follows is an argument.
    End,
    Long(&'a str),
    Short(&'a str),
}

impl Word<'_> {
    fn of(word: &OsStr) -> Result<Word<'_>, Words> {
        let is_option = word.len() > 1 && word.as_encoded_bytes().starts_with(b"-");
        match word.to_str() {
            _ if !is_option => Ok(Word::Argument),
            None => Err(Words::Unknown(word.to_string_lossy().into_owned())),
            Some("--") => Ok(Word::End),
            Some(text) => Ok(match text.strip_prefix("--") {
                Some(long) => Word::Long(long),
                None => Word::Short(&text[1..]),
            }),
        }
    }
}

/// The option of this name, or the only one that begins so.
fn by_name(name: &str) -> Result<&'static OptionSpec, Words> {
    if let Some(exact) = OPTIONS.iter().find(|spec| spec.name == name) {
        return Ok(exact);
    }
    let mut similar = OPTIONS.iter().filter(|spec| spec.name.starts_with(name));
    match (similar.next(), similar.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(Words::Tool),
        (None, _) => Err(Words::Unknown(format!("--{name}"))),
    }
}

fn text<'a>(spec: &OptionSpec, value: Option<&'a OsStr>) -> Result<&'a str, Words> {
    let unreadable = || Words::Unknown(format!("--{}", spec.name));
    value.and_then(OsStr::to_str).ok_or_else(unreadable)
}

fn port(text: &str) -> Result<u16, Words> {
    text.trim().parse().map_err(|_| Words::Tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Words {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        read_words(&words, |_| None)
    }

    #[track_caller]
    fn options(line: &str) -> RestoreOptions {
        match read(line) {
            Words::Restore(options) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_are_read_as_the_tool_reads_them() {
        let found =
            options("d.tar.gz -c db:5 -i shop -i blog.posts --user=ann -q --tls-cert ca.pem --temp-dir /t");
        assert_eq!((found.host.as_str(), found.port, found.user.as_str()), ("db", 5, "ann"));
        assert_eq!(found.only.iter().map(Only::to_string).collect::<Vec<_>>(), ["shop", "blog.posts"]);
        assert_eq!(found.authorities.as_deref(), Some(Path::new("ca.pem")));
        assert_eq!(found.temp_dir.as_deref(), Some(Path::new("/t")));
        assert!(found.is_quiet && !found.asks_password && found.archive == "d.tar.gz");
        let found = options("-qpcdb --password-f p --imp shop --shards 2 --force -");
        assert_eq!((found.host.as_str(), found.port, found.user.as_str()), ("db", 28015, "admin"));
        assert_eq!(found.password_file.as_deref(), Some(Path::new("p")));
        assert!(found.is_quiet && found.asks_password && found.archive == "-");
        assert_eq!(options("--host-name h --driver-port 7 -- --odd").archive, "--odd");
    }

    #[test]
    fn the_environment_has_defaults() {
        let variable = |name: &str| (name == "RETHINKDB_HOSTNAME").then(|| "db".to_owned());
        let Words::Restore(found) = read_words(&["d".into()], variable) else { panic!() };
        assert_eq!((found.host.as_str(), found.port), ("db", 28015));
    }

    #[test]
    fn the_tool_answers_what_is_no_restore() {
        let refused = [
            "",
            "a b",
            "--help",
            "-h",
            "--version",
            "d --pass",
            "d -c",
            "d -c h:x",
            "d --force=1",
            "d -i a.b.c",
        ];
        for line in refused {
            assert_eq!(read(line), Words::Tool, "{line}");
        }
        assert_eq!(read("d --new-option 5"), Words::Unknown("--new-option".to_owned()));
        assert_eq!(read("d -qz"), Words::Unknown("-z".to_owned()));
    }

    #[test]
    fn a_password_file_takes_the_place_of_the_question() {
        let found = options("d.tar.gz -p -cdb --force --clients=3");
        let line = |words: Vec<OsString>| {
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let kept = "--connect db --force --clients 3";
        assert_eq!(line(found.with(Path::new("x"), None)), format!("{kept} --password -- x"));
        assert_eq!(
            line(found.with(Path::new("x"), Some(Path::new("f")))),
            format!("{kept} --password-file f -- x")
        );
        assert!(
            matches!(read_words(&found.with(Path::new("x"), None), |_| None), Words::Restore(again) if again.others == found.others)
        );
    }
}
