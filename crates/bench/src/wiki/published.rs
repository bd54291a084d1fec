//! The published figures of Terark's report: 38,508,221 articles of Wikipedia, 102.1 GiB, 32 threads, 30 minutes a test.

use std::sync::LazyLock;

use serde::Deserialize;

use super::reading::{BATCH_ROWS, Test};
use crate::published;

/// The name of the report among the published ones.
const REPORT: &str = "terark-wikipedia-2017";

static ENGINES: LazyLock<Vec<PublishedEngine>> = LazyLock::new(|| {
    let engines = published::figures()[REPORT]["engines"].clone();
    serde_json::from_value(engines).expect("invariant: a test parses the published figures")
});

/// An engine of the report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PublishedEngine {
    pub name: String,
    /// The size of the data on disk, in percent of the file of rows.
    pub disk_percent: f64,
    /// With 128 GB of memory.
    pub in_memory: PublishedTests,
    /// With 24 GB.
    pub small_memory: PublishedTests,
}

/// The tests at one size of memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PublishedTests {
    pub read: PublishedTest,
    pub batch_read: PublishedTest,
    pub read_write: PublishedTest,
}

/// One test of one engine. For `read_write`, the latencies of reads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PublishedTest {
    /// Operations; for `batch_read` documents.
    pub per_second: f64,
    /// For `batch_read` a part of a query's latency: the report divides it by the number of documents.
    pub p99_us: f64,
}

impl PublishedTests {
    pub fn of(&self, test: Test) -> &PublishedTest {
        match test {
            Test::Read => &self.read,
            Test::BatchRead => &self.batch_read,
            Test::ReadWrite => &self.read_write,
        }
    }
}

impl PublishedTest {
    /// The 99th percentile of whole queries.
    pub fn query_p99_us(&self, test: Test) -> f64 {
        match test {
            Test::BatchRead => self.p99_us * BATCH_ROWS as f64,
            Test::Read | Test::ReadWrite => self.p99_us,
        }
    }
}

/// MongoDB 3.2.13 with WiredTiger, and TerarkDB with files of 2 GB and of 24 GB.
pub fn engines() -> &'static [PublishedEngine] {
    &ENGINES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_can_be_read() {
        let names: Vec<_> = engines().iter().map(|engine| engine.name.as_str()).collect();
        assert_eq!(names, ["MongoDB 3.2.13", "TerarkDB, 2 GB files", "TerarkDB, 24 GB files"]);
        let mongo = &engines()[0];
        assert_eq!(mongo.disk_percent, 57.1);
        assert_eq!(mongo.small_memory.of(Test::Read).per_second, 2_822.0);
        assert_eq!(mongo.in_memory.of(Test::BatchRead).query_p99_us(Test::BatchRead), 4_060.0);
        assert_eq!(published::figures()[REPORT]["batch_rows"].as_u64(), Some(BATCH_ROWS as u64));
    }
}
