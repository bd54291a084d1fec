//! Workload and property flags of the two YCSB commands.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use crate::flags::{LoopFlags, ServerFlags};
use crate::ycsb::properties::Properties;
use crate::ycsb::settings::Settings;
use crate::ycsb::table::Loaded;

/// The workload, in YCSB's terms.
#[derive(Args, Clone, Debug)]
pub struct PropertyFlags {
    /// Workload a to f, or a YCSB property file
    pub workload: Option<String>,
    /// YCSB property file; later ones override earlier ones
    #[arg(short = 'P', value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// YCSB property, overriding the files
    #[arg(short = 'p', value_name = "NAME=VALUE")]
    pub overrides: Vec<String>,
    /// Records in the table (recordcount)
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Table of the documents
    #[arg(long)]
    pub table: Option<String>,
    /// Durability of writes: hard or soft
    #[arg(long)]
    pub durability: Option<String>,
    /// Shards of the table; a load rebalances them at its end
    #[arg(long, value_name = "N")]
    pub shards: Option<u32>,
    /// Replicas of the table
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
}

/// Properties and settings, with remarks about them.
pub struct ChosenProperties {
    /// The name of the workload for titles: a letter or the file's name.
    pub workload: String,
    /// All properties that were set.
    pub properties: Properties,
    /// The settings that result from them.
    pub settings: Settings,
    /// Warnings about properties.
    pub notes: Vec<String>,
}

impl PropertyFlags {
    /// Reads files and overrides. `extra` are properties that a command's own flags set.
    pub fn choose(&self, extra: &[(&str, Option<String>)]) -> anyhow::Result<ChosenProperties> {
        let mut properties = Properties::default();
        let mut name = None;
        if let Some(workload) = &self.workload {
            match Properties::named(&workload.to_lowercase()) {
                Some(named) => properties = named,
                None => add_file(&mut properties, workload.as_ref())?,
            }
            name = Some(workload.clone());
        }
        for file in &self.files {
            add_file(&mut properties, file)?;
            name = name.or(file.file_name().map(|n| n.to_string_lossy().into_owned()));
        }
        for text in &self.overrides {
            properties.add_override(text)?;
        }
        let flags = [
            ("recordcount", self.records.map(|n| n.to_string())),
            ("table", self.table.clone()),
            ("rethinkdb.durability", self.durability.clone()),
        ];
        for (name, value) in flags.into_iter().chain(extra.iter().cloned()) {
            value.inspect(|value| properties.set(name, value));
        }
        let settings = Settings::from_properties(&properties)?;
        let notes = properties.warnings();
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        let workload = name.unwrap_or_default();
        let workload = workload.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(ChosenProperties { workload, properties, settings, notes })
    }
}

impl ChosenProperties {
    /// Adopts the load's parameters of keys and values, unless they were given.
    pub fn adopt(&mut self, loaded: &Loaded) -> anyhow::Result<()> {
        let shape = &loaded.shape;
        let insertorder = shape["hashed"].as_bool().map(|hashed| if hashed { "hashed" } else { "ordered" });
        let known = [
            ("fieldcount", scalar(&shape["fieldcount"])),
            ("fieldlength", scalar(&shape["fieldlength"])),
            ("fieldnameprefix", scalar(&shape["fieldnameprefix"])),
            ("fieldalphabet", scalar(&shape["fieldalphabet"])),
            ("dataintegrity", scalar(&shape["dataintegrity"])),
            ("zeropadding", scalar(&shape["zeropadding"])),
            ("insertorder", insertorder.map(str::to_owned)),
        ];
        for (name, value) in known {
            if self.properties.text(name).is_none() {
                value.inspect(|value| self.properties.set(name, value));
            }
        }
        self.settings = Settings::from_properties(&self.properties)?;
        Ok(())
    }

    /// Sets flags that were not given from the equivalent properties.
    pub fn fill(&self, server: &mut ServerFlags, pacing: &mut LoopFlags) -> anyhow::Result<()> {
        let properties = &self.properties;
        if server.hosts.is_empty()
            && let Some(hosts) = properties.text("rethinkdb.host")
        {
            server.hosts = hosts.split(',').map(|host| host.trim().to_owned()).collect();
        }
        let number = "a number";
        server.port = server.port.or(properties.parsed("rethinkdb.port", number)?);
        pacing.connections = pacing.connections.or(properties.positive("threadcount")?);
        pacing.target = pacing.target.or(properties.parsed("target", number)?);
        pacing.warmup = pacing.warmup.or(properties.parsed("warmuptime", number)?);
        let seconds: Option<f64> = properties.parsed("maxexecutiontime", number)?;
        pacing.seconds = pacing.seconds.or(seconds.filter(|s| *s > 0.0));
        if pacing.target.is_some_and(|rate| !rate.is_finite() || rate < 0.0) {
            bail!("the target rate must be a positive number");
        }
        Ok(())
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn add_file(properties: &mut Properties, path: &std::path::Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{} is neither a workload (a to f) nor a property file", path.display()))?;
    properties.add_file(&text);
    Ok(())
}
