//! Admission to a full partition: a row is admitted on its second miss, if the first one was not long ago. So a row that
//! is read once evicts no row that is read often.

/// Misses that are remembered for each cached row. With more, rows that are read seldom are admitted too.
const MISSES_PER_ROW: usize = 4;
/// Misses with the same bucket; the oldest one is forgotten when another is added.
const WAYS: usize = 4;

/// The hashes of recently missed rows, in two bytes each. A row may be taken for another one, once in some ten thousand
/// misses.
#[derive(Default)]
pub(super) struct RecentMisses {
    // Their number is a power of two. A zero is free.
    buckets: Vec<[u16; WAYS]>,
}

impl RecentMisses {
    /// Whether a row with this hash was missed recently; it is forgotten then. Otherwise it is remembered. The partition
    /// has `rows` rows.
    pub(super) fn take_or_add(&mut self, hash: u64, rows: usize) -> bool {
        self.fit(rows);
        // The lower bits choose the chain inside a partition, the next ones the partition.
        let place = (hash >> 40) as usize & (self.buckets.len() - 1);
        let bucket = &mut self.buckets[place];
        let mark = (hash as u16).max(1);
        match bucket.iter().position(|other| *other == mark) {
            Some(found) => {
                bucket[found..].rotate_left(1);
                bucket[WAYS - 1] = 0;
                true
            }
            None => {
                bucket.rotate_right(1);
                bucket[0] = mark;
                false
            }
        }
    }

    /// Starts anew when the number of rows has changed by a factor of two.
    fn fit(&mut self, rows: usize) {
        let wanted = (rows * MISSES_PER_ROW / WAYS).next_power_of_two();
        if self.buckets.len() < wanted || self.buckets.len() > 4 * wanted {
            self.buckets = vec![[0; WAYS]; wanted];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_miss_is_recognized_if_it_is_soon() {
        let mut misses = RecentMisses::default();
        let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert!(!misses.take_or_add(hash(1), 1000));
        assert!(misses.take_or_add(hash(1), 1000));
        assert!(!misses.take_or_add(hash(1), 1000), "it counts anew once it was admitted");
        for n in 10..500 {
            assert!(!misses.take_or_add(hash(n), 1000), "{n}");
        }
        assert!(misses.take_or_add(hash(1), 1000), "few others were missed since");
        assert!(!misses.take_or_add(hash(1), 1000));
        for n in 1000..100_000 {
            misses.take_or_add(hash(n), 1000);
        }
        assert!(!misses.take_or_add(hash(1), 1000), "many others were missed since");
    }

    #[test]
    fn any_number_of_rows_is_possible() {
        let mut misses = RecentMisses::default();
        for rows in [0, 1, 3, 100_000, 7, 0] {
            assert!(!misses.take_or_add(u64::MAX, rows));
            assert!(misses.take_or_add(u64::MAX, rows));
        }
    }
}
