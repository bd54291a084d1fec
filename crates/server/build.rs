//! Compresses the console's files (`ui/dist`) and gives each the tag by which browsers keep it.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Bytes of the digest that a tag shows.
const TAG_BYTES: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let dist = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../ui/dist");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&dist)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    let mut list = String::from("pub(super) const FILES: &[EmbeddedFile] = &[\n");
    for path in paths {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a file name is not UTF-8")?;
        let bytes = fs::read(&path)?;
        let compressed = out.join(format!("{name}.gz"));
        fs::write(&compressed, gzip(&bytes)?)?;
        writeln!(
            list,
            "    EmbeddedFile {{ name: {name:?}, tag: {:?}, gzip: include_bytes!({:?}) }},",
            tag(&bytes),
            compressed.display().to_string(),
        )?;
    }
    list.push_str("];\n");
    fs::write(out.join("console_files.rs"), list)?;
    Ok(())
}

/// The bytes, compressed as far as possible: it is done once.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// A quoted entity tag.
fn tag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let digits: String = digest.iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}
