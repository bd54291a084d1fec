//! The numbers of tests that passed, failed and were skipped, from the closing lines of the runners.

use std::fmt;

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Count {
    pub(super) fn add(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Adds the numbers of `line` if it is a closing line: ours (`N passed, N failed[, N skipped]`),
    /// cargo's (`test result: …`) or Node's (`# pass N`, `ℹ pass N`).
    pub(super) fn read(&mut self, line: &str) {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("test result: ") {
            let numbers = rest.split_once(". ").map_or(rest, |(_, numbers)| numbers);
            self.read_list(numbers, ';');
        } else if line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(" passed, ") {
            self.read_list(line, ',');
        } else if let Some(rest) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "))
            && let Some((word, number)) = rest.split_once(' ')
        {
            self.add_named(word, number.parse().unwrap_or(0));
        }
    }

    fn read_list(&mut self, list: &str, separator: char) {
        for part in list.split(separator) {
            if let Some((number, word)) = part.trim().split_once(' ') {
                self.add_named(word, number.parse().unwrap_or(0));
            }
        }
    }

    fn add_named(&mut self, word: &str, number: u64) {
        match word {
            "passed" | "pass" => self.passed += number,
            "failed" | "fail" => self.failed += number,
            "skipped" | "ignored" => self.skipped += number,
            _ => {}
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::Count;

    fn read(lines: &[&str]) -> (u64, u64, u64) {
        let mut count = Count::default();
        lines.iter().for_each(|line| count.read(line));
        (count.passed, count.failed, count.skipped)
    }

    #[test]
    fn closing_lines_of_each_runner_are_understood() {
        assert_eq!(
            read(&["test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out"]),
            (7, 0, 1)
        );
        assert_eq!(read(&["test result: FAILED. 6 passed; 2 failed; 0 ignored"]), (6, 2, 0));
        assert_eq!(read(&["1900 passed, 12 failed, 3 skipped"]), (1900, 12, 3));
        assert_eq!(read(&["# tests 5", "# pass 4", "# fail 1"]), (4, 1, 0));
        assert_eq!(read(&["running 7 tests", "warning: 3 passed by"]), (0, 0, 0));
    }
}
