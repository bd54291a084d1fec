//! The name of a server: configured, or generated once and stored.

use std::io;
use std::path::Path;

use ::io::{Files, Random};

const FILE: &str = "server_name";
const HOST_CHARACTERS_MAX: usize = 50;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";

/// The host name of the machine.
#[must_use]
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "server".to_owned(),
        name => name.to_owned(),
    }
}

/// The name for the data directory `dir`: the stored one, or else `given`, or else a new one from the host name and
/// three letters. It is stored for the next start; from then on only `server_config` changes it.
pub fn choose(given: Option<&str>, dir: &Path, files: &dyn Files, random: &dyn Random) -> io::Result<String> {
    let path = dir.join(FILE);
    let kept = match files.read(&path) {
        Ok(bytes) => {
            String::from_utf8(bytes).ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let name = match (given, &kept) {
        (Some(given), None) => given.to_owned(),
        (Some(given), Some(kept)) => {
            if given != kept {
                tracing::info!(
                    "Ignoring --server-name {given}: this server has a name; update it in rethinkdb.server_config"
                );
            }
            kept.clone()
        }
        (None, Some(kept)) => kept.clone(),
        (None, None) => generate(&hostname(), random),
    };
    if kept.as_ref() != Some(&name) {
        let new = dir.join("server_name.new");
        // Left over if the process was killed here before.
        drop(files.remove(&new));
        let file = files.create(&new)?;
        file.append(format!("{name}\n").as_bytes())?;
        file.sync_data()?;
        files.rename(&new, &path)?;
        files.sync_dir(dir)?;
    }
    Ok(name)
}

fn generate(hostname: &str, random: &dyn Random) -> String {
    let legal = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let host: String = hostname.chars().take(HOST_CHARACTERS_MAX).map(legal).collect();
    let mut bytes = [0; 3];
    random.fill(&mut bytes);
    let letters: String = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    format!("{host}_{letters}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::io::real::{RealFiles, RealRandom};

    #[test]
    fn a_name_is_given_or_made_up_once() {
        let dir = tempfile::tempdir().unwrap();
        let choose = |given| choose(given, dir.path(), &RealFiles, &RealRandom).unwrap();
        let first = choose(None);
        assert_eq!(choose(None), first);
        assert_eq!(choose(Some("bob")), first);
        assert_eq!(choose(None), first);
    }

    #[test]
    fn a_made_up_name_is_legal() {
        let name = generate("my.häuschen", &RealRandom);
        assert!(name.starts_with("my_h_uschen_") && name.len() == "my_h_uschen_abc".len(), "{name}");
    }
}
