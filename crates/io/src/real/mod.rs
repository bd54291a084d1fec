//! The real machine: its clocks, its file system, TCP, and the operating system's randomness.

mod clock;
mod files;
mod network;
mod random;

pub use clock::RealClock;
pub use files::RealFiles;
pub use network::{BorrowedLoop, NetworkThread, Tls, TlsError, TlsFile, server_config};
pub use random::RealRandom;
