//! New random ids: UUIDs, replica ids, ids of copies.

use std::sync::Arc;

use io::Random;
use log::PeerId;
use uuid::Uuid;

/// Generates random ids.
#[derive(Clone)]
pub(crate) struct Ids(Arc<dyn Random>);

impl Ids {
    pub(crate) fn new(random: Arc<dyn Random>) -> Ids {
        Ids(random)
    }

    /// A random UUID of version 4.
    pub(crate) fn new_uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.0.fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The id of a new replica in its group; never zero.
    pub(crate) fn new_peer(&self) -> PeerId {
        PeerId((self.0.next_u64() >> 1) | 1)
    }

    pub(crate) fn new_copy(&self) -> u64 {
        self.0.next_u64()
    }
}
