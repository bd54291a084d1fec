//! Decides from the free space of the disk whether rows are refused and whether the reserve is held: a pure core without
//! clock and files.
//!
//! Rows are refused while there is still space for what cannot be refused: changes on their way, deletions, flushes and merges
//! of the engine. If others take that space as well, the reserve is given up for it.

/// The decision of one look, in the order of the steps to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub refuses_rows: bool,
    pub reserve: Reserve,
}

/// What becomes of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserve {
    Keep,
    /// Delete its file: the space is needed now.
    GiveUp,
    /// Make its file: there is space again.
    Make,
}

/// The levels of one disk, in bytes.
#[derive(Debug)]
pub(super) struct Levels {
    reserve_bytes: u64,
    refuses_rows: bool,
}

impl Levels {
    /// Levels for a reserve of `reserve_bytes`, which are more than 0.
    pub(super) fn new(reserve_bytes: u64) -> Levels {
        Levels { reserve_bytes, refuses_rows: false }
    }

    /// Decides with `free` bytes of free space besides the reserve, which is there or not. `was_short`: the engine has found no
    /// space, which a merge does earlier than others.
    ///
    /// With the reserve, rows are refused below half of its size, and accepted again from its size. Without it, they are
    /// refused until it can be made and as much again is free.
    pub(super) fn step(&mut self, free: u64, has_reserve: bool, was_short: bool) -> Decision {
        let size = self.reserve_bytes;
        let reserve = match has_reserve {
            true if was_short || free < size / 8 => Reserve::GiveUp,
            false if free >= 2 * size => Reserve::Make,
            _ => Reserve::Keep,
        };
        self.refuses_rows = match (reserve, has_reserve) {
            (Reserve::GiveUp, _) => true,
            (Reserve::Make, _) => false,
            (Reserve::Keep, false) => true,
            (Reserve::Keep, true) => free < if self.refuses_rows { size } else { size / 2 },
        };
        Decision { refuses_rows: self.refuses_rows, reserve }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(refuses_rows: bool, reserve: Reserve) -> Decision {
        Decision { refuses_rows, reserve }
    }

    #[test]
    fn rows_are_refused_below_half_of_the_reserve_and_accepted_from_its_size() {
        let mut levels = Levels::new(800);
        assert_eq!(levels.step(5_000, true, false), decided(false, Reserve::Keep));
        assert_eq!(levels.step(400, true, false), decided(false, Reserve::Keep));
        assert_eq!(levels.step(399, true, false), decided(true, Reserve::Keep));
        assert_eq!(
            levels.step(799, true, false),
            decided(true, Reserve::Keep),
            "space that comes and goes changes nothing"
        );
        assert_eq!(levels.step(800, true, false), decided(false, Reserve::Keep));
    }

    #[test]
    fn the_reserve_is_given_up_for_the_last_space_and_made_again_later() {
        let mut levels = Levels::new(800);
        assert_eq!(levels.step(99, true, false), decided(true, Reserve::GiveUp));
        assert_eq!(levels.step(899, false, false), decided(true, Reserve::Keep));
        assert_eq!(levels.step(1_599, false, false), decided(true, Reserve::Keep));
        assert_eq!(levels.step(1_600, false, false), decided(false, Reserve::Make));
        assert_eq!(levels.step(800, true, false), decided(false, Reserve::Keep));
    }

    #[test]
    fn the_reserve_is_given_up_for_a_merge_that_found_no_space() {
        let mut levels = Levels::new(800);
        assert_eq!(levels.step(700, true, true), decided(true, Reserve::GiveUp));
        assert_eq!(levels.step(1_500, false, false), decided(true, Reserve::Keep));
    }

    #[test]
    fn a_start_on_a_full_disk_refuses_rows_until_a_reserve_is_there() {
        let mut levels = Levels::new(800);
        assert_eq!(levels.step(10, false, false), decided(true, Reserve::Keep));
        assert_eq!(levels.step(1_600, false, false), decided(false, Reserve::Make));
    }
}
