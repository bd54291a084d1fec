//! The real machine: clocks, file system, TCP, and randomness of the operating system.

mod clock;
mod files;
mod network;
mod random;

pub use clock::RealClock;
pub use files::RealFiles;
pub use network::{BorrowedLoop, NetworkThread, Tls, TlsError, TlsFile, server_config};
pub use random::RealRandom;
