//! YCSB properties: files, overrides, and the named workloads.

use std::collections::BTreeMap;

/// Properties of YCSB without effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "db",
    "dotransactions",
    "exporter",
    "exportfile",
    "hdrhistogram.fileoutput",
    "hdrhistogram.output.path",
    "hdrhistogram.percentiles",
    "histogram.buckets",
    "label",
    "latencytrackederrors",
    "measurement.histogram.verbose",
    "measurement.interval",
    "measurement.raw.no_summary",
    "measurement.raw.output_file",
    "measurement.trackjvm",
    "measurementtype",
    "outputstyle",
    "readallfieldsbyname",
    "reportlatencyforeacherror",
    "silence",
    "spin.sleep",
    "status",
    "status.interval",
    "timeseries.granularity",
    "core_workload_insertion_retry_interval",
    "core_workload_insertion_retry_keep_going_on_error",
    "core_workload_insertion_retry_limit",
];

/// Supported properties.
const KNOWN: &[&str] = &[
    "batch.size",
    "dataintegrity",
    "dropdata",
    "exponential.frac",
    "exponential.percentile",
    "fieldalphabet",
    "fieldcount",
    "fieldlength",
    "fieldlengthdistribution",
    "fieldlengthhistogram",
    "fieldnameprefix",
    "hotspotdatafraction",
    "hotspotopnfraction",
    "insertcount",
    "insertorder",
    "insertproportion",
    "insertstart",
    "maxexecutiontime",
    "maxscanlength",
    "minfieldlength",
    "minscanlength",
    "operationcount",
    "readallfields",
    "readmodifywriteproportion",
    "readproportion",
    "recordcount",
    "requestdistribution",
    "rethinkdb.durability",
    "rethinkdb.host",
    "rethinkdb.port",
    "rethinkdb.readmode",
    "rethinkdb.table",
    "scanlengthdistribution",
    "scanorder",
    "scanproportion",
    "table",
    "target",
    "threadcount",
    "updateproportion",
    "warmuptime",
    "workload",
    "writeallfields",
    "zeropadding",
];

const CORE_WORKLOADS: &[&str] =
    &["site.ycsb.workloads.CoreWorkload", "com.yahoo.ycsb.workloads.CoreWorkload", "core"];

/// Why properties are invalid.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PropertyError {
    /// A value is wrong.
    #[error("property {name}={value}: expected {expected}")]
    BadValue {
        /// The property.
        name: String,
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// An override is malformed.
    #[error("-p {text}: expected name=value")]
    BadOverride {
        /// The argument.
        text: String,
    },
    /// The workload class is not supported.
    #[error("workload class {class} is not known (only the core workload is)")]
    UnknownWorkload { class: String },
    /// Values contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

/// Names and values; the last value of a name applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    values: BTreeMap<String, String>,
}

impl Properties {
    /// The properties of workload `letter` (a to f) from YCSB's own files, without record and operation counts.
    pub fn named(letter: &str) -> Option<Self> {
        let [read, update, insert, scan, rmw] = match letter {
            "a" => ["0.5", "0.5", "0", "0", "0"],
            "b" => ["0.95", "0.05", "0", "0", "0"],
            "c" => ["1.0", "0", "0", "0", "0"],
            "d" => ["0.95", "0", "0.05", "0", "0"],
            "e" => ["0", "0", "0.05", "0.95", "0"],
            "f" => ["0.5", "0", "0", "0", "0.5"],
            _ => return None,
        };
        let mut properties = Properties::default();
        properties.set("readallfields", "true");
        properties.set("readproportion", read);
        properties.set("updateproportion", update);
        properties.set("insertproportion", insert);
        properties.set("scanproportion", scan);
        properties.set("readmodifywriteproportion", rmw);
        properties.set("requestdistribution", if letter == "d" { "latest" } else { "zipfian" });
        if letter == "e" {
            properties.set("maxscanlength", "100");
            properties.set("scanlengthdistribution", "uniform");
        }
        Some(properties)
    }

    /// Adds the properties of a file: `name=value` or `name: value`, `#` and `!` comments, and lines continued by a
    /// backslash.
    pub fn add_file(&mut self, text: &str) {
        let mut joined = String::new();
        for line in text.lines() {
            let line = line.trim_start();
            if joined.is_empty() && line.starts_with(['#', '!']) {
                continue;
            }
            match line.strip_suffix('\\') {
                Some(continued) => joined.push_str(continued),
                None => {
                    joined.push_str(line);
                    self.add_line(&joined);
                    joined.clear();
                }
            }
        }
        self.add_line(&joined);
    }

    /// Adds an override, `name=value`.
    pub fn add_override(&mut self, text: &str) -> Result<(), PropertyError> {
        let bad = || PropertyError::BadOverride { text: text.to_owned() };
        let (name, value) = text.split_once('=').ok_or_else(bad)?;
        self.set(name.trim(), value.trim());
        Ok(())
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A property, parsed.
    pub fn parsed<T: std::str::FromStr>(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<Option<T>, PropertyError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| self.bad(name, expected))
    }

    /// A property as a whole number of at least 1.
    pub fn positive<T: std::str::FromStr + PartialOrd + From<u8>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, PropertyError> {
        const EXPECTED: &str = "a whole number of at least 1";
        let number = self.parsed::<T>(name, EXPECTED)?;
        if number.as_ref().is_some_and(|number| *number < T::from(1)) {
            return Err(self.bad(name, EXPECTED));
        }
        Ok(number)
    }

    /// A property as a flag; as in YCSB, only `true` means yes.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |value| value.eq_ignore_ascii_case("true"))
    }

    /// The error for a property with a value that is not as `expected`.
    pub fn bad(&self, name: &str, expected: &'static str) -> PropertyError {
        let value = self.text(name).unwrap_or_default().to_owned();
        PropertyError::BadValue { name: name.to_owned(), value, expected }
    }

    /// Rejects workload classes that are not supported.
    pub fn check_workload(&self) -> Result<(), PropertyError> {
        match self.text("workload") {
            Some(class) if !CORE_WORKLOADS.contains(&class) => {
                Err(PropertyError::UnknownWorkload { class: class.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// A warning for every property without effect.
    pub fn warnings(&self) -> Vec<String> {
        let names = self.values.keys().map(String::as_str);
        names
            .filter(|name| !KNOWN.contains(name))
            .map(|name| match WITHOUT_EFFECT.contains(&name) {
                true => format!("property {name} has no effect here"),
                false => format!("unknown property {name} is ignored"),
            })
            .collect()
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn add_line(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        let end = line.find(['=', ':', ' ', '\t']).unwrap_or(line.len());
        let value = line[end..].trim_start().trim_start_matches(['=', ':']).trim();
        self.set(line[..end].trim(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_java_reads_them() {
        let mut properties = Properties::default();
        properties.add_file(
            "# Workload A\n! too\nrecordcount=1000\n  operationcount : 500\n\n\
             workload=site.ycsb.workloads.CoreWorkload\nfieldnameprefix = fi\\\n   eld\nempty\n",
        );
        assert_eq!(properties.text("recordcount"), Some("1000"));
        assert_eq!(properties.parsed::<u64>("operationcount", "a number"), Ok(Some(500)));
        assert_eq!(properties.text("fieldnameprefix"), Some("field"));
        assert_eq!(properties.text("empty"), Some(""));
        assert_eq!(properties.check_workload(), Ok(()));
    }

    #[test]
    fn overrides_win_and_mistakes_are_named() {
        let mut properties = Properties::named("a").expect("workload a");
        properties.add_override("readproportion=0.9").expect("an override");
        properties.add_override("reedproportion=0.9").expect("an override");
        properties.add_override("status=true").expect("an override");
        assert_eq!(properties.text("readproportion"), Some("0.9"));
        assert_eq!(
            properties.warnings(),
            ["unknown property reedproportion is ignored", "property status has no effect here"]
        );
        assert!(properties.add_override("readproportion").is_err());
        properties.set("recordcount", "many");
        let error = properties.parsed::<u64>("recordcount", "a number").expect_err("no number");
        assert_eq!(error.to_string(), "property recordcount=many: expected a number");
        assert!(Properties::named("g").is_none());
    }
}
