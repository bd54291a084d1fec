//! The bytes of one simulated file: which of them are durable, and how faults change them.

use std::ops::Range;

use super::fault::{Decay, Fault};
use crate::sim::SimRandom;

/// The unit in which a disk writes.
const SECTOR_BYTES: usize = 512;

#[derive(Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    // Bytes below this offset are durable.
    durable_len: usize,
    // Bytes removed by an unsynced truncation: a power loss restores them at `durable_len`.
    cut: Vec<u8>,
}

impl Content {
    pub(super) fn durable(bytes: Vec<u8>) -> Content {
        Content { durable_len: bytes.len(), bytes, cut: Vec::new() }
    }

    pub(super) fn sync(&mut self) {
        self.durable_len = self.bytes.len();
        self.cut.clear();
    }

    pub(super) fn truncate(&mut self, len: usize) {
        if len < self.durable_len {
            let mut cut = self.bytes[len..self.durable_len].to_vec();
            cut.append(&mut self.cut);
            self.cut = cut;
            self.durable_len = len;
        }
        self.bytes.resize(len, 0);
    }

    /// Appends `bytes` as a disk does that has this fault.
    pub(super) fn append(&mut self, bytes: &[u8], fault: Option<Fault>, random: &SimRandom) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let place = start..self.bytes.len();
        match fault {
            Some(Fault::Append | Fault::Full) => {
                let written = random.below(bytes.len() as u64) as usize;
                self.bytes.truncate(start + written);
            }
            Some(Fault::Lost) => self.bytes[place].fill(0),
            Some(Fault::Torn) => self.lose_sectors(place, random),
            Some(Fault::Misdirected) if start > 0 => {
                self.bytes[place].fill(0);
                let count = bytes.len().min(start);
                let at = random.below((start - count) as u64 + 1) as usize;
                self.bytes[at..at + count].copy_from_slice(&bytes[..count]);
            }
            Some(Fault::Flip) if !bytes.is_empty() => self.flip(place, random),
            _ => {}
        }
    }

    /// Changes durable bytes.
    pub(super) fn decay(&mut self, decay: Decay, random: &SimRandom) {
        self.sync();
        let len = self.bytes.len();
        if len == 0 {
            return;
        }
        let sector = || random.below(len.div_ceil(SECTOR_BYTES) as u64) as usize * SECTOR_BYTES;
        match decay {
            Decay::Flip => self.flip(0..len, random),
            Decay::Zero => {
                let start = sector();
                self.bytes[start..len.min(start + SECTOR_BYTES)].fill(0);
            }
            Decay::Truncate => self.bytes.truncate(random.below(len as u64) as usize),
            Decay::Swap => {
                let (one, other) = (sector(), sector());
                let count = SECTOR_BYTES.min(len - one.max(other));
                (0..count).for_each(|nth| self.bytes.swap(one + nth, other + nth));
            }
        }
        self.sync();
    }

    /// Keeps synced bytes and a random part of the others.
    pub(super) fn forget_unsynced(&mut self, random: &SimRandom) {
        // An unsynced truncation either reached the disk, or neither it nor any later write did.
        if !self.cut.is_empty() && random.one_in(2) {
            self.bytes.truncate(self.durable_len);
            self.bytes.append(&mut self.cut);
            self.sync();
            return;
        }
        let unsynced_bytes = self.bytes.len() - self.durable_len;
        match random.below(4) {
            0 => self.bytes.truncate(self.durable_len),
            // The length reached the disk, but some of the sectors did not.
            1 => self.lose_sectors(self.durable_len..self.bytes.len(), random),
            _ => {
                let kept = random.below(unsynced_bytes as u64 + 1) as usize;
                self.bytes.truncate(self.durable_len + kept);
            }
        }
        self.sync();
    }

    /// Zeros in place of some of the sectors of `place`.
    fn lose_sectors(&mut self, place: Range<usize>, random: &SimRandom) {
        let mut start = place.start;
        while start < place.end {
            let end = (start / SECTOR_BYTES + 1) * SECTOR_BYTES;
            let end = end.min(place.end);
            if random.one_in(3) {
                self.bytes[start..end].fill(0);
            }
            start = end;
        }
    }

    fn flip(&mut self, place: Range<usize>, random: &SimRandom) {
        let bit = random.below(place.len() as u64 * 8);
        self.bytes[place.start + (bit / 8) as usize] ^= 1 << (bit % 8);
    }
}
