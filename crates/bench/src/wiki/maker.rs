//! Makes rows in the form of an SQL dump of Wikipedia from texts.

use std::collections::HashSet;
use std::io::{self, Write};

use crate::rng::Rng;

/// Half of the articles are shorter than this.
const MEDIAN_BYTES: f64 = 600.0;
/// The standard deviation of the logarithm of the lengths: articles have about 2.8 KB on average then, as in Wikipedia.
const SPREAD: f64 = 1.75;
const ARTICLE_BYTES: std::ops::RangeInclusive<f64> = 40.0..=200_000.0;
/// A shorter paragraph may come again.
const REPEATED_BYTES_MIN: usize = 60;
/// The number of different users.
const USERS: u64 = 5_000;

/// Divides texts into articles and writes them as rows.
pub struct RowMaker<W: Write> {
    out: W,
    rng: Rng,
    seen: HashSet<u64>,
    article: String,
    /// The length at which the article is complete.
    wanted: usize,
    id: u64,
    /// The beginning of an earlier paragraph, as a comment.
    comment: String,
    rows: u64,
    bytes: u64,
}

impl<W: Write> RowMaker<W> {
    pub fn new(out: W, seed: u64) -> RowMaker<W> {
        let mut maker = RowMaker {
            out,
            rng: Rng::new(seed, 9_000_000),
            seen: HashSet::new(),
            article: String::new(),
            wanted: 0,
            id: 10,
            comment: String::new(),
            rows: 0,
            bytes: 0,
        };
        maker.wanted = maker.draw_length();
        maker
    }

    /// Adds a paragraph, unless it came before: copies of a licence in every file would compress too well.
    pub fn add(&mut self, paragraph: &str) -> io::Result<()> {
        if paragraph.len() >= REPEATED_BYTES_MIN && !self.seen.insert(hash(paragraph)) {
            return Ok(());
        }
        let mut rest = paragraph;
        while !rest.is_empty() {
            if !self.article.is_empty() {
                self.article.push_str("\n\n");
            }
            let room = self.wanted.saturating_sub(self.article.len()).max(1);
            let (part, after) = rest.split_at(ceil_char(rest, room));
            self.article.push_str(part);
            rest = after;
            if self.article.len() >= self.wanted {
                self.end_article()?;
            }
        }
        Ok(())
    }

    /// Writes the last article. Returns the number of rows and of their bytes.
    pub fn finish(mut self) -> io::Result<(u64, u64)> {
        if !self.article.trim().is_empty() {
            self.end_article()?;
        }
        self.out.flush()?;
        Ok((self.rows, self.bytes))
    }

    /// Bytes of the rows so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn end_article(&mut self) -> io::Result<()> {
        self.id += 1 + self.rng.below(3);
        let title: String = self.article.split_whitespace().take(4).collect::<Vec<_>>().join("_");
        let title: String = title.chars().take(24).collect();
        // The most active users make most of the edits.
        let user = (self.rng.unit().powi(3) * USERS as f64) as u64;
        let (year, rest) = (2004 + self.rng.below(12), self.rng.below(10_000_000_000));
        let time = format!("{year}{rest:010}");
        let inverse: String = time.bytes().map(|digit| char::from(b'0' + b'9' - digit)).collect();
        let minor = u64::from(self.rng.below(5) == 0);
        let line = format!(
            "{id}\t0\t'{title}'\t'{text}'\t'{comment}'\t{user}\t'User {user}'\t'{time}'\t''\t0\t0\t{minor}\tRAND()\t\
             DATE_ADD('1970-01-01', INTERVAL UNIX_TIMESTAMP() SECOND)+0\t'{inverse}'\n",
            id = self.id,
            title = escaped(&title),
            text = escaped(&self.article),
            comment = escaped(&self.comment),
        );
        self.out.write_all(line.as_bytes())?;
        self.rows += 1;
        self.bytes += line.len() as u64;
        let length = self.rng.below(60) as usize;
        self.comment = self.article.chars().take(length).collect();
        self.article.clear();
        self.wanted = self.draw_length();
        Ok(())
    }

    /// The length of the next article: log-normal.
    fn draw_length(&mut self) -> usize {
        let (first, second) = (1.0 - self.rng.unit(), self.rng.unit());
        let normal = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
        let bytes = MEDIAN_BYTES * (SPREAD * normal).exp();
        bytes.clamp(*ARTICLE_BYTES.start(), *ARTICLE_BYTES.end()) as usize
    }
}

/// The first place from `at` on where `text` can be divided.
fn ceil_char(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// As it stands in a string of an SQL dump. Other control characters are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 32);
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other if other.is_control() => {}
            other => out.push(other),
        }
    }
    out
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiki::columns::parse;

    fn made(seed: u64) -> (Vec<u8>, u64) {
        let mut out = Vec::new();
        let mut maker = RowMaker::new(&mut out, seed);
        for number in 0..40_000_u32 {
            let noise = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let paragraph =
                format!("Part {noise} of it's \"text\"\nwith a tab\t and Größe, {}.", noise.rotate_left(17));
            maker.add(&paragraph).unwrap();
            maker
                .add("The same licence in every file of this package, without any change to its words.")
                .unwrap();
        }
        let (rows, bytes) = maker.finish().unwrap();
        assert_eq!(bytes, out.len() as u64);
        (out, rows)
    }

    #[test]
    fn made_rows_are_read_as_rows_and_are_as_long_as_articles() {
        let (out, rows) = made(7);
        let lines: Vec<&[u8]> = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len() as u64, rows);
        let mut keys = HashSet::new();
        for line in &lines {
            assert!(keys.insert(parse(line).unwrap().key));
        }
        let mean = out.len() / lines.len();
        assert!((1_800..4_200).contains(&mean), "{mean} bytes");
        let text = String::from_utf8_lossy(&out);
        assert_eq!(text.matches("The same licence in").count(), 1);
        assert_eq!(made(7).0, out);
        assert_ne!(made(8).0, out);
    }
}
