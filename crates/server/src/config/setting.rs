//! A single option as it was given, and where.

use std::fmt;
use std::path::PathBuf;

use super::options::{Arity, MISSING, OptionSpec, find, nearest};

/// Where an option was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag,
    /// In a configuration file.
    File {
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
}

/// A single option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Without dashes.
    pub name: String,
    /// Its value; `None` if there was none.
    pub value: Option<String>,
    /// Where it was given.
    pub origin: Origin,
}

impl Setting {
    /// An option of the command line.
    pub fn flag(name: impl Into<String>, value: Option<String>) -> Setting {
        Setting { name: name.into(), value, origin: Origin::Flag }
    }

    /// An error about this option.
    pub(super) fn wrong(&self, what: impl Into<String>) -> ConfigError {
        ConfigError { place: self.to_string(), what: what.into() }
    }
}

/// The option as it was written, and where: the beginning of an error message.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match (&self.value, self.name.as_str()) {
            (Some(_), "initial-password") => Some("…"),
            (value, _) => value.as_deref(),
        };
        match (&self.origin, value) {
            (Origin::Flag, None) => write!(f, "--{}", self.name),
            (Origin::Flag, Some(value)) => write!(f, "--{} {value}", self.name),
            (Origin::File { path, line }, None) => {
                write!(f, "{}, line {line}: {}", path.display(), self.name)
            }
            (Origin::File { path, line }, Some(value)) => {
                write!(f, "{}, line {line}: {}={value}", path.display(), self.name)
            }
        }
    }
}

/// An invalid option: its place, the problem, and the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    /// The flag, or the file and line.
    pub place: String,
    /// The problem and the correct form.
    pub what: String,
}

/// The options by name; flags have replaced lines of the file.
pub(super) struct Settings(Vec<Setting>);

impl Settings {
    /// Checks that each option exists, has a value exactly if it takes one, and is not repeated if it takes only one.
    pub(super) fn new(settings: Vec<Setting>) -> Result<Settings, ConfigError> {
        let mut kept: Vec<Setting> = Vec::new();
        for setting in settings {
            let spec = known(&setting)?;
            let setting = with_value(setting, spec)?;
            let again = kept.iter().find(|other| {
                other.name == setting.name && other.origin.is_flag() == setting.origin.is_flag()
            });
            match (spec.takes, again) {
                (Arity::One(_), Some(first)) => {
                    return Err(setting.wrong(format!("already given ({first}); keep one")));
                }
                _ => kept.push(setting),
            }
        }
        let by_flag: Vec<String> = kept
            .iter()
            .filter(|setting| setting.origin.is_flag())
            .map(|setting| setting.name.clone())
            .collect();
        kept.retain(|setting| setting.origin.is_flag() || !by_flag.contains(&setting.name));
        Ok(Settings(kept))
    }

    pub(super) fn one(&self, name: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| setting.name == name)
    }

    /// All occurrences of the option.
    pub(super) fn many<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Setting> {
        self.0.iter().filter(move |setting| setting.name == name)
    }

    /// Whether an option was given; for options without a value.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.one(name).is_some()
    }
}

impl Origin {
    fn is_flag(&self) -> bool {
        *self == Origin::Flag
    }
}

fn known(setting: &Setting) -> Result<&'static OptionSpec, ConfigError> {
    let name = setting.name.as_str();
    if let Some(spec) = find(name) {
        return Ok(spec);
    }
    if let Some((_, instead)) = MISSING.iter().find(|(missing, _)| *missing == name) {
        return Err(setting.wrong(format!("not supported: {instead}")));
    }
    Err(setting.wrong(match nearest(name) {
        Some(near) => format!("there is no such option; did you mean `{near}`?"),
        None => "there is no such option; `rekindle help serve` lists them".to_owned(),
    }))
}

fn with_value(setting: Setting, spec: &OptionSpec) -> Result<Setting, ConfigError> {
    match (spec.takes, setting.value.as_deref()) {
        (Arity::Nothing, None | Some("" | "true")) => Ok(Setting { value: None, ..setting }),
        (Arity::Nothing, Some(_)) => {
            Err(setting.wrong("takes no value; leave the line out to switch it off"))
        }
        (Arity::One(value) | Arity::Many(value), None | Some("")) => {
            Err(setting.wrong(format!("needs a value: {value}")))
        }
        (Arity::One(_) | Arity::Many(_), Some(_)) => Ok(setting),
    }
}
