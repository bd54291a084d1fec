//! The published figures of Terark's report: 38,508,221 articles of Wikipedia, 102.1 GiB, 32 threads, 30 minutes a test.

/// An engine of the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedEngine {
    pub name: &'static str,
    /// The size of the data on disk, in percent of the file of rows.
    pub disk_percent: f64,
    /// With 128 GB of memory.
    pub in_memory: PublishedRates,
    /// With 24 GB.
    pub small_memory: PublishedRates,
}

/// Operations a second; for `batch_read` documents a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedRates {
    pub read: f64,
    pub batch_read: f64,
    pub read_write: f64,
}

/// MongoDB 3.2.13 with WiredTiger, and TerarkDB with files of 2 GB and of 24 GB.
pub const ENGINES: [PublishedEngine; 3] = [
    PublishedEngine {
        name: "MongoDB 3.2.13",
        disk_percent: 57.1,
        in_memory: PublishedRates { read: 131_485.0, batch_read: 336_620.0, read_write: 10_601.0 },
        small_memory: PublishedRates { read: 2_822.0, batch_read: 2_860.0, read_write: 3_073.0 },
    },
    PublishedEngine {
        name: "TerarkDB, 2 GB files",
        disk_percent: 26.7,
        in_memory: PublishedRates { read: 134_188.0, batch_read: 317_480.0, read_write: 56_336.0 },
        small_memory: PublishedRates { read: 25_192.0, batch_read: 22_500.0, read_write: 10_831.0 },
    },
    PublishedEngine {
        name: "TerarkDB, 24 GB files",
        disk_percent: 22.9,
        in_memory: PublishedRates { read: 140_948.0, batch_read: 328_220.0, read_write: 74_703.0 },
        small_memory: PublishedRates { read: 28_059.0, batch_read: 23_260.0, read_write: 6_702.0 },
    },
];
