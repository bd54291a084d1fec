//! The keys of all loaded rows, from which reads draw, with the digests of their documents.

use crate::rng::Rng;

/// Keys and digests, in one piece of memory each.
#[derive(Debug, Default)]
pub struct Keys {
    text: String,
    ends: Vec<usize>,
    digests: Vec<u32>,
}

impl Keys {
    pub fn push(&mut self, key: &str, digest: u32) {
        self.text.push_str(key);
        self.ends.push(self.text.len());
        self.digests.push(digest);
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key of row `place` and the digest of its document.
    pub fn get(&self, place: usize) -> (&str, u32) {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.text[start..self.ends[place]], self.digests[place])
    }

    /// The number of a random row.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        rng.below(self.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_comes_back_with_its_digest() {
        let mut keys = Keys::default();
        for number in 0..100 {
            keys.push(&"é".repeat(number), number as u32);
        }
        for number in 0..100 {
            assert_eq!(keys.get(number), (&*"é".repeat(number), number as u32));
        }
        let mut rng = Rng::new(1, 2);
        assert!((0..1000).all(|_| keys.draw(&mut rng) < keys.len()) && !keys.is_empty());
    }
}
