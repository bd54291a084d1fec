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
        let identity = Identity { server: ServerId(id("server")?), cluster: id("cluster")?, joined };
        match object.get("checksum") {
            Some(Datum::String(found)) if *found != *identity.checksum() => {
                Err(wrong("it does not match its checksum".to_owned()))
            }
            // Without one: written by an earlier release.
            _ => Ok(Some(identity)),
        }
    }

    /// The CRC-32C of the ids, in hexadecimal.
    fn checksum(&self) -> String {
        let joined = self.joined.map(|peer| peer.to_string()).unwrap_or_default();
        let ids = format!("{} {} {joined}", self.server, self.cluster);
        format!("{:08x}", crc32c::crc32c(ids.as_bytes()))
    }

    /// Writes the identity into `dir`, atomically, and waits until it is durable.
    pub fn store(&self, files: &dyn Files, dir: &Path) -> Result<(), OpenError> {
        let fields = [
            ("version", Datum::Number(VERSION)),
            ("server", self.server.to_string().into()),
            ("cluster", self.cluster.to_string().into()),
            ("checksum", self.checksum().into()),
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

#[cfg(test)]
mod tests {
    use io::sim::SimFiles;

    use super::*;

    fn replace(files: &SimFiles, path: &Path, text: &str) {
        files.remove(path).unwrap();
        files.create(path).unwrap().append(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_changed_id_is_noticed_and_a_file_of_an_earlier_release_is_read() {
        let (files, dir) = (SimFiles::new(1), Path::new("/data"));
        files.create_dir_all(dir).unwrap();
        let identity = Identity {
            server: ServerId(Uuid::from_u128(7)),
            cluster: Uuid::from_u128(8),
            joined: Some(PeerId(9)),
        };
        identity.store(&files, dir).unwrap();
        assert_eq!(Identity::load(&files, dir).unwrap(), Some(identity.clone()));
        let path = dir.join(FILE);
        let text = String::from_utf8(files.read(&path).unwrap()).unwrap();
        for (from, to) in [("0007", "0006"), ("0008", "0009"), (&identity.checksum()[..], "00000000")] {
            replace(&files, &path, &text.replacen(from, to, 1));
            assert!(Identity::load(&files, dir).is_err(), "{from}");
        }
        replace(&files, &path, &text.replace("checksum", "other"));
        assert_eq!(Identity::load(&files, dir).unwrap(), Some(identity));
    }
}
