//! The files that keep samples of metrics: `docs/formats/metrics-history.md`.
//!
//! Samples are appended to one file; a full one becomes the older file, in place of the one before it. Nothing is synced: a power
//! cut may lose the last samples, and a damaged sample is left out.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::io::{File, Files};
use query::{MetricsHistory, MetricsSample};

const NAME: &str = "metrics_history";
const OLDER_NAME: &str = "metrics_history.older";

/// The name of the format, then its version.
const HEADER: &[u8; 8] = b"RKMETR\0\x01";
const VALUES: usize = MetricsHistory::NAMES.len();
const RECORD_BYTES: usize = 8 + 4 * VALUES + 4;

/// The file that samples are appended to.
pub(super) struct HistoryFile {
    directory: PathBuf,
    files: Box<dyn Files>,
    file: Arc<dyn File>,
    /// The bytes of whole records, with the header.
    length: u64,
}

impl HistoryFile {
    /// Opens the file in `directory`, or creates it. Also returns the samples in it and in the older file, the oldest first.
    pub(super) fn open(
        directory: &Path,
        files: Box<dyn Files>,
    ) -> io::Result<(HistoryFile, Vec<MetricsSample>)> {
        let mut samples = read(&*files, &directory.join(OLDER_NAME))?;
        let path = directory.join(NAME);
        let file = match files.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => create(&*files, &path)?,
            Ok(file) if has_header(&*file)? => file,
            Ok(_) => {
                tracing::warn!("{NAME} has another format and is begun anew");
                files.remove(&path)?;
                create(&*files, &path)?
            }
            Err(error) => return Err(error),
        };
        samples.extend(read(&*files, &path)?);
        let records = (file.len()? - HEADER.len() as u64) / RECORD_BYTES as u64;
        let length = HEADER.len() as u64 + records * RECORD_BYTES as u64;
        // A record that was not written whole would move all later ones.
        file.truncate(length)?;
        Ok((HistoryFile { directory: directory.to_owned(), files, file, length }, samples))
    }

    /// Appends a sample. After a failure the file holds whole records again once a later call succeeds.
    pub(super) fn append(&mut self, sample: &MetricsSample) -> io::Result<()> {
        if self.file.len()? != self.length {
            self.file.truncate(self.length)?;
        }
        if self.length >= (HEADER.len() + MetricsHistory::SAMPLES_MAX * RECORD_BYTES) as u64 {
            let path = self.directory.join(NAME);
            self.files.rename(&path, &self.directory.join(OLDER_NAME))?;
            self.file = create(&*self.files, &path)?;
            self.length = HEADER.len() as u64;
        }
        self.file.append(&encode(sample))?;
        self.length += RECORD_BYTES as u64;
        Ok(())
    }
}

fn create(files: &dyn Files, path: &Path) -> io::Result<Arc<dyn File>> {
    let file = files.create(path)?;
    file.append(HEADER)?;
    Ok(file)
}

fn has_header(file: &dyn File) -> io::Result<bool> {
    let mut header = [0; HEADER.len()];
    Ok(file.read_at(0, &mut header)? == HEADER.len() && header == *HEADER)
}

/// The samples of a file. A missing one, or one of another format, has none.
fn read(files: &dyn Files, path: &Path) -> io::Result<Vec<MetricsSample>> {
    let bytes = match files.read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let records = bytes.strip_prefix(HEADER).unwrap_or_default();
    Ok(records.chunks_exact(RECORD_BYTES).filter_map(decode).collect())
}

fn encode(sample: &MetricsSample) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_BYTES);
    bytes.extend(sample.at.to_le_bytes());
    sample.values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// The sample in a record; `None` if it is damaged.
fn decode(record: &[u8]) -> Option<MetricsSample> {
    let (content, checksum) = record.split_last_chunk::<4>()?;
    if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (at, mut rest) = content.split_first_chunk::<8>()?;
    let mut values = [0.0; VALUES];
    for value in &mut values {
        let (bytes, later) = rest.split_first_chunk::<4>()?;
        *value = f32::from_le_bytes(*bytes);
        rest = later;
    }
    Some(MetricsSample { at: u64::from_le_bytes(*at), values })
}

#[cfg(test)]
mod tests {
    use ::io::real::RealFiles;

    use super::*;

    fn sample(at: u64) -> MetricsSample {
        MetricsSample { at, values: [at as f32 / 3.0; VALUES] }
    }

    fn open(directory: &Path) -> (HistoryFile, Vec<MetricsSample>) {
        HistoryFile::open(directory, Box::new(RealFiles)).unwrap()
    }

    fn times(samples: &[MetricsSample]) -> Vec<u64> {
        samples.iter().map(|sample| sample.at).collect()
    }

    #[test]
    fn samples_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, none) = open(directory.path());
        assert_eq!(none, []);
        file.append(&sample(10)).unwrap();
        file.append(&sample(20)).unwrap();
        let (mut file, read) = open(directory.path());
        assert_eq!(read, [sample(10), sample(20)]);
        file.append(&sample(30)).unwrap();
        assert_eq!(open(directory.path()).1, [sample(10), sample(20), sample(30)]);
    }

    #[test]
    fn damaged_and_torn_samples_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (mut file, _) = open(directory.path());
        (1..=3).for_each(|at| file.append(&sample(at)).unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[HEADER.len() + RECORD_BYTES + 3] ^= 1;
        bytes.extend([7; RECORD_BYTES - 1]);
        std::fs::write(&path, bytes).unwrap();
        let (mut file, read) = open(directory.path());
        assert_eq!(times(&read), [1, 3]);
        file.append(&sample(4)).unwrap();
        assert_eq!(times(&open(directory.path()).1), [1, 3, 4]);
        std::fs::write(&path, "something else").unwrap();
        assert_eq!(times(&open(directory.path()).1), []);
    }

    #[test]
    fn a_full_file_becomes_the_older_one() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, _) = open(directory.path());
        let count = MetricsHistory::SAMPLES_MAX as u64 * 2 + 5;
        (0..count).for_each(|at| file.append(&sample(at)).unwrap());
        let (_, read) = open(directory.path());
        assert_eq!(times(&read), (MetricsHistory::SAMPLES_MAX as u64..count).collect::<Vec<_>>());
    }
}
