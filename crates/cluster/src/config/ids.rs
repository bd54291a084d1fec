//! New identities, drawn at random and never used again.

use std::sync::Arc;

use io::Random;
use log::PeerId;
use uuid::Uuid;

/// Draws identities.
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

    /// A name for a new replica.
    pub(crate) fn new_peer(&self) -> PeerId {
        PeerId((self.0.next_u64() >> 1) | 1)
    }

    /// A number for a new copy.
    pub(crate) fn new_copy(&self) -> u64 {
        self.0.next_u64()
    }
}
