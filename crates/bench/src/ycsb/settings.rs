//! The settings of a YCSB run, typed, with YCSB's defaults.

use serde_json::{Map, Value, json};

use super::keys::KeyShape;
use super::lengths::{Buckets, Lengths};
use super::properties::{Properties, PropertyError};
use super::values::Alphabet;

/// The database of the published binding.
pub const DATABASE: &str = "ycsb";
/// The primary key of the published binding.
pub const PRIMARY_KEY: &str = "__pk__";

/// The distribution of chosen records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    Uniform,
    /// Scrambled zipfian.
    Zipfian,
    /// The newest records most often.
    Latest,
    /// A part of the records gets a given part of the operations.
    Hotspot {
        /// `hotspotdatafraction`
        data_share: f64,
        /// `hotspotopnfraction`
        operation_share: f64,
    },
    /// The newest records most often, with an exponential decline.
    Exponential {
        /// `exponential.percentile`
        percentile: f64,
        /// `exponential.frac`
        share: f64,
    },
    /// In order.
    Sequential,
}

/// Shares of the operations, with a sum of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// `readproportion`
    pub read: f64,
    /// `updateproportion`
    pub update: f64,
    /// `insertproportion`
    pub insert: f64,
    /// `scanproportion`
    pub scan: f64,
    /// `readmodifywriteproportion`
    pub read_modify_write: f64,
}

/// The order in which a scan reads documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOrder {
    /// As in the published binding: unordered.
    Unordered,
    /// By key, as in other bindings of YCSB.
    ByKey,
}

/// The settings of a workload.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Table of the documents, in [`DATABASE`].
    pub table: String,
    /// Records loaded before the run; `None` if not given.
    pub recordcount: Option<u64>,
    /// First record of the load.
    pub insertstart: u64,
    /// Records of the load.
    pub insertcount: Option<u64>,
    /// Operations of the run.
    pub operationcount: Option<u64>,
    /// Fields per document.
    pub fieldcount: usize,
    /// Lengths of their values.
    pub field_lengths: Lengths,
    /// Prefix of their names; the number follows.
    pub fieldnameprefix: String,
    /// Whether reads return whole documents.
    pub readallfields: bool,
    /// Whether updates write every field.
    pub writeallfields: bool,
    /// Whether values can be verified.
    pub dataintegrity: bool,
    /// Shares of the operations.
    pub mix: Mix,
    /// The distribution of chosen records.
    pub distribution: Distribution,
    pub scan_lengths: Lengths,
    pub scan_order: ScanOrder,
    /// How record numbers become keys.
    pub keys: KeyShape,
    /// Characters of values.
    pub alphabet: Alphabet,
    /// `durability` of this run's writes, or of the table when it is created.
    pub durability: Option<String>,
    /// `read_mode` of this run's reads.
    pub readmode: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings::from_properties(&Properties::default()).expect("invariant: the defaults are in order")
    }
}

impl Settings {
    /// Derives the settings from properties. A histogram file of field lengths is read from disk.
    pub fn from_properties(properties: &Properties) -> Result<Self, PropertyError> {
        properties.check_workload()?;
        let number = |name: &str| properties.parsed::<u64>(name, "a whole number");
        let settings = Settings {
            table: properties
                .text("rethinkdb.table")
                .or(properties.text("table"))
                .unwrap_or("usertable")
                .to_owned(),
            recordcount: number("recordcount")?,
            insertstart: number("insertstart")?.unwrap_or(0),
            insertcount: number("insertcount")?,
            operationcount: number("operationcount")?.filter(|n| *n > 0),
            fieldcount: number("fieldcount")?.unwrap_or(10) as usize,
            field_lengths: field_lengths(properties)?,
            fieldnameprefix: properties.text("fieldnameprefix").unwrap_or("field").to_owned(),
            readallfields: properties.flag("readallfields", true),
            writeallfields: properties.flag("writeallfields", false),
            dataintegrity: properties.flag("dataintegrity", false),
            mix: mix(properties)?,
            distribution: distribution(properties)?,
            scan_lengths: scan_lengths(properties)?,
            scan_order: scan_order(properties)?,
            keys: KeyShape {
                hashed: properties.text("insertorder").unwrap_or("hashed") == "hashed",
                digits_min: number("zeropadding")?.unwrap_or(1).min(64) as usize,
            },
            alphabet: alphabet(properties)?,
            durability: one_of(properties, "rethinkdb.durability", "hard or soft", &["hard", "soft"])?,
            readmode: one_of(
                properties,
                "rethinkdb.readmode",
                "single, majority or outdated",
                &["single", "majority", "outdated"],
            )?,
        };
        settings.check()?;
        Ok(settings)
    }

    /// The name of field number `place`.
    pub fn field(&self, place: usize) -> String {
        format!("{}{place}", self.fieldnameprefix)
    }

    /// The number of keys that the zipfian generator expects the run to add.
    pub fn expected_new_keys(&self) -> u64 {
        let operations = self.operationcount.unwrap_or(0) as f64;
        let expected = (operations * self.mix.insert * 2.0) as u64;
        // The upper bound became inclusive after 0.1.4.
        expected + u64::from(self.alphabet == Alphabet::Ycsb)
    }

    /// Whether a run changes documents, so that the sums of the load no longer apply.
    pub fn changes_documents(&self) -> bool {
        let writes = self.mix.update + self.mix.read_modify_write;
        self.mix.insert > 0.0 || (writes > 0.0 && !self.dataintegrity)
    }

    /// The settings for the result, under YCSB's names.
    pub fn describe(&self) -> Map<String, Value> {
        let described = json!({
            "table": self.table,
            "recordcount": self.recordcount,
            "insertstart": self.insertstart,
            "insertcount": self.insertcount,
            "operationcount": self.operationcount,
            "fieldcount": self.fieldcount,
            "fieldlength": describe_lengths(&self.field_lengths),
            "fieldnameprefix": self.fieldnameprefix,
            "readallfields": self.readallfields,
            "writeallfields": self.writeallfields,
            "dataintegrity": self.dataintegrity,
            "readproportion": self.mix.read,
            "updateproportion": self.mix.update,
            "insertproportion": self.mix.insert,
            "scanproportion": self.mix.scan,
            "readmodifywriteproportion": self.mix.read_modify_write,
            "requestdistribution": describe_distribution(&self.distribution),
            "scanlength": describe_lengths(&self.scan_lengths),
            "scanorder": if self.scan_order == ScanOrder::ByKey { "key" } else { "none" },
            "insertorder": if self.keys.hashed { "hashed" } else { "ordered" },
            "zeropadding": self.keys.digits_min,
            "fieldalphabet": self.alphabet.name(),
            "rethinkdb.durability": self.durability,
            "rethinkdb.readmode": self.readmode,
        });
        match described {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn check(&self) -> Result<(), PropertyError> {
        let contradiction = |text: &str| Err(PropertyError::Contradiction(text.to_owned()));
        if self.dataintegrity && self.field_lengths.constant().is_none() {
            return contradiction("dataintegrity needs fieldlengthdistribution=constant");
        }
        if self.fieldcount == 0 {
            return contradiction("fieldcount must be at least 1");
        }
        let Some(records) = self.recordcount else { return Ok(()) };
        let count = self.insertcount.unwrap_or(records.saturating_sub(self.insertstart));
        if self.insertstart + count > records || count == 0 {
            return contradiction(&format!(
                "insertstart {} and insertcount {count} do not lie within recordcount {records}",
                self.insertstart
            ));
        }
        Ok(())
    }
}

fn mix(properties: &Properties) -> Result<Mix, PropertyError> {
    let share = |name: &str, default: f64| -> Result<f64, PropertyError> {
        let value = properties.parsed::<f64>(name, "a number of at least 0")?.unwrap_or(default);
        let sound = value.is_finite() && value >= 0.0;
        sound.then_some(value).ok_or_else(|| properties.bad(name, "a number of at least 0"))
    };
    let raw = [
        share("readproportion", 0.95)?,
        share("updateproportion", 0.05)?,
        share("insertproportion", 0.0)?,
        share("scanproportion", 0.0)?,
        share("readmodifywriteproportion", 0.0)?,
    ];
    let sum: f64 = raw.iter().sum();
    if sum <= 0.0 {
        return Err(PropertyError::Contradiction("all proportions are 0".to_owned()));
    }
    let [read, update, insert, scan, read_modify_write] = raw.map(|share| share / sum);
    Ok(Mix { read, update, insert, scan, read_modify_write })
}

fn distribution(properties: &Properties) -> Result<Distribution, PropertyError> {
    let number = |name: &str, default: f64| -> Result<f64, PropertyError> {
        Ok(properties.parsed::<f64>(name, "a number")?.unwrap_or(default))
    };
    Ok(match properties.text("requestdistribution").unwrap_or("uniform") {
        "uniform" => Distribution::Uniform,
        "zipfian" => Distribution::Zipfian,
        "latest" => Distribution::Latest,
        "sequential" => Distribution::Sequential,
        "hotspot" => Distribution::Hotspot {
            data_share: number("hotspotdatafraction", 0.2)?.clamp(0.0, 1.0),
            operation_share: number("hotspotopnfraction", 0.8)?.clamp(0.0, 1.0),
        },
        "exponential" => Distribution::Exponential {
            percentile: number("exponential.percentile", 95.0)?,
            share: number("exponential.frac", 0.857_142_857_1)?,
        },
        _ => {
            let expected = "uniform, zipfian, latest, hotspot, exponential or sequential";
            return Err(properties.bad("requestdistribution", expected));
        }
    })
}

fn field_lengths(properties: &Properties) -> Result<Lengths, PropertyError> {
    let number = |name: &str, default: u64| -> Result<u64, PropertyError> {
        Ok(properties.parsed::<u64>(name, "a whole number")?.unwrap_or(default))
    };
    let (longest, shortest) = (number("fieldlength", 100)?, number("minfieldlength", 1)?);
    Ok(match properties.text("fieldlengthdistribution").unwrap_or("constant") {
        "constant" => Lengths::Constant(longest),
        "uniform" => Lengths::Uniform(shortest, longest),
        "zipfian" => Lengths::zipfian(shortest, longest),
        "histogram" => {
            let path = properties.text("fieldlengthhistogram").unwrap_or("hist.txt");
            let text = std::fs::read_to_string(path)
                .map_err(|e| PropertyError::Contradiction(format!("{path}: {e}")))?;
            let buckets =
                Buckets::parse(&text).map_err(|e| PropertyError::Contradiction(format!("{path}: {e}")))?;
            Lengths::Histogram(buckets)
        }
        _ => {
            let expected = "constant, uniform, zipfian or histogram";
            return Err(properties.bad("fieldlengthdistribution", expected));
        }
    })
}

fn scan_lengths(properties: &Properties) -> Result<Lengths, PropertyError> {
    let number = |name: &str, default: u64| -> Result<u64, PropertyError> {
        Ok(properties.parsed::<u64>(name, "a whole number")?.unwrap_or(default))
    };
    let (shortest, longest) = (number("minscanlength", 1)?, number("maxscanlength", 1000)?);
    match properties.text("scanlengthdistribution").unwrap_or("uniform") {
        "uniform" => Ok(Lengths::Uniform(shortest, longest)),
        "zipfian" => Ok(Lengths::zipfian(shortest, longest)),
        _ => Err(properties.bad("scanlengthdistribution", "uniform or zipfian")),
    }
}

fn scan_order(properties: &Properties) -> Result<ScanOrder, PropertyError> {
    match properties.text("scanorder").unwrap_or("none") {
        "none" => Ok(ScanOrder::Unordered),
        "key" => Ok(ScanOrder::ByKey),
        _ => Err(properties.bad("scanorder", "none or key")),
    }
}

fn alphabet(properties: &Properties) -> Result<Alphabet, PropertyError> {
    match properties.text("fieldalphabet").unwrap_or("ycsb") {
        "ycsb" => Ok(Alphabet::Ycsb),
        "ycsb014" => Ok(Alphabet::Ycsb014),
        _ => Err(properties.bad("fieldalphabet", "ycsb or ycsb014")),
    }
}

fn one_of(
    properties: &Properties,
    name: &str,
    expected: &'static str,
    allowed: &[&str],
) -> Result<Option<String>, PropertyError> {
    match properties.text(name) {
        None => Ok(None),
        Some(value) if allowed.contains(&value) => Ok(Some(value.to_owned())),
        Some(_) => Err(properties.bad(name, expected)),
    }
}

fn describe_lengths(lengths: &Lengths) -> Value {
    match lengths {
        Lengths::Constant(length) => json!(length),
        Lengths::Uniform(from, to) => json!(format!("uniform {from} to {to}")),
        Lengths::Zipfian(from, _) => json!(format!("zipfian from {from}")),
        Lengths::Histogram(_) => json!("histogram"),
    }
}

fn describe_distribution(distribution: &Distribution) -> String {
    match distribution {
        Distribution::Uniform => "uniform".to_owned(),
        Distribution::Zipfian => "zipfian".to_owned(),
        Distribution::Latest => "latest".to_owned(),
        Distribution::Sequential => "sequential".to_owned(),
        Distribution::Hotspot { data_share, operation_share } => {
            format!("hotspot {data_share} of the data, {operation_share} of the operations")
        }
        Distribution::Exponential { percentile, share } => {
            format!("exponential, {percentile} % in {share} of the data")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_named_workloads_are_those_of_the_original() {
        let settings = Settings::default();
        assert_eq!((settings.mix.read, settings.mix.update), (0.95, 0.05));
        assert_eq!((settings.fieldcount, settings.table.as_str()), (10, "usertable"));
        assert_eq!(settings.field_lengths.constant(), Some(100));
        assert_eq!(settings.distribution, Distribution::Uniform);
        let e = Properties::named("e").expect("workload e");
        let e = Settings::from_properties(&e).expect("settings");
        assert_eq!((e.mix.scan, e.mix.insert), (0.95, 0.05));
        assert!(matches!(e.scan_lengths, Lengths::Uniform(1, 100)));
    }

    #[test]
    fn proportions_are_normalised_and_contradictions_refused() {
        let mut properties = Properties::default();
        properties.set("readproportion", "3");
        properties.set("updateproportion", "1");
        let settings = Settings::from_properties(&properties).expect("settings");
        assert_eq!((settings.mix.read, settings.mix.update), (0.75, 0.25));
        for (name, value) in [
            ("requestdistribution", "zipf"),
            ("rethinkdb.durability", "fast"),
            ("insertproportion", "-1"),
            ("workload", "site.ycsb.workloads.RestWorkload"),
        ] {
            let mut wrong = properties.clone();
            wrong.set(name, value);
            assert!(Settings::from_properties(&wrong).is_err(), "{name}={value}");
        }
        properties.set("recordcount", "100");
        properties.set("insertstart", "90");
        properties.set("insertcount", "20");
        assert!(Settings::from_properties(&properties).is_err());
    }

    #[test]
    fn the_key_space_of_a_run_with_inserts_is_that_of_its_era() {
        let mut properties = Properties::named("d").expect("workload d");
        properties.set("operationcount", "1000");
        let today = Settings::from_properties(&properties).expect("settings");
        assert_eq!(today.expected_new_keys(), 101);
        properties.set("fieldalphabet", "ycsb014");
        let then = Settings::from_properties(&properties).expect("settings");
        assert_eq!(then.expected_new_keys(), 100);
    }
}
