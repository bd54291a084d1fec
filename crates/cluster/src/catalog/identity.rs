//! The identity of a node, written once when its data directory is created.

use std::path::Path;

use datum::{Datum, Object, Text, json};
use io::Files;
use uuid::Uuid;

use crate::config::{PeerId, ServerId};
use crate::error::OpenError;

const FILE: &str = "identity.json";
const VERSION: f64 = 1.0;

/// The identity of a data directory: one server of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The permanent id of the server.
    pub server: ServerId,
    /// The id of its cluster; links to servers of other clusters are refused.
    pub cluster: Uuid,
    /// The id of its replica of the catalog if it joined a cluster; `None` on the server that created the cluster.
    pub joined: Option<PeerId>,
}

impl Identity {
    /// Reads the identity from `dir`; `None` in a new directory.
    ///
    /// Fails if the file exists but cannot be read or parsed.
    pub fn load(files: &dyn Files, dir: &Path) -> Result<Option<Identity>, OpenError> {
        let path = dir.join(FILE);
        let text = match files.read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let wrong = |why: String| OpenError::Identity { path: path.display().to_string(), why };
        let datum = json::parse(&text).map_err(|e| wrong(e.to_string()))?;
        let Datum::Object(object) = datum else {
            return Err(wrong("it is not a JSON object".to_owned()));
        };
        if object.get("version") != Some(Datum::Number(VERSION)) {
            return Err(wrong("its version is not 1: was it written by a newer release?".to_owned()));
        }
        let id = |name: &str| match object.get(name) {
            Some(Datum::String(text)) => Uuid::parse_str(&text).map_err(|e| wrong(format!("{name}: {e}"))),
            _ => Err(wrong(format!("field {name:?} is missing"))),
        };
        let joined = match object.get("joined") {
            Some(Datum::String(text)) => {
                let peer = u64::from_str_radix(&text, 16);
                Some(PeerId(peer.map_err(|e| wrong(format!("joined: {e}")))?))
            }
            _ => None,
        };
        Ok(Some(Identity { server: ServerId(id("server")?), cluster: id("cluster")?, joined }))
    }

    /// Writes the identity into `dir`, atomically, and waits until it is durable.
    pub fn store(&self, files: &dyn Files, dir: &Path) -> Result<(), OpenError> {
        let fields = [
            ("version", Datum::Number(VERSION)),
            ("server", self.server.to_string().into()),
            ("cluster", self.cluster.to_string().into()),
        ];
        let joined = self.joined.map(|peer| ("joined", peer.to_string().into()));
        let object: Object =
            fields.into_iter().chain(joined).map(|(name, value)| (Text::from_static(name), value)).collect();
        let text = Datum::from(object).to_json_string();
        let new = dir.join("identity.json.new");
        match files.remove(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let file = files.create(&new)?;
        file.append(text.as_bytes())?;
        file.sync_data()?;
        files.rename(&new, &dir.join(FILE))?;
        files.sync_dir(dir)?;
        Ok(())
    }
}
