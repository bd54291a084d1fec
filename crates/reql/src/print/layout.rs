//! Pretty printer: documents with possible line breaks, laid out on lines of limited width.
//!
//! Oppen's algorithm in linear time: a document becomes a list of pieces, the end of each nest without line breaks
//! is computed, and one pass over the pieces decides which breaks to use. Widths are in bytes. Source: RethinkDB
//! 2.4, src/pprint/pprint.cc, including where lines may break.

use std::borrow::Cow;

/// Budget of spaces for indentation: this many, plus one for each byte of the document. After a long string all
/// following lines would be indented by its length; once the budget is used up, lines start at the left.
const SPACES_ALWAYS: usize = 1 << 20;
const SPACES_PER_BYTE: usize = 4;

/// A document to lay out.
#[derive(Debug)]
pub(super) enum Doc {
    /// Text that is never broken.
    Text(Cow<'static, str>),
    /// Either `flat`, or the end of a line with `next` at the start of the following one.
    Break {
        /// The text on one line.
        flat: &'static str,
        /// The text at the start of the next line.
        next: &'static str,
    },
    /// An unconditional line break.
    NewLine,
    /// A sequence of documents.
    Row(Vec<Doc>),
    /// Lines are indented to the column of its first byte. Breaks directly inside it are all used if it does not
    /// fit on the line, and none otherwise. Breaks outside any nest are always used.
    Nest(Box<Doc>),
}

impl Doc {
    /// A space, or a line break.
    pub(super) const SPACE: Doc = Doc::Break { flat: " ", next: "" };
    /// A dot, which moves to the next line at a break.
    pub(super) const DOT: Doc = Doc::Break { flat: ".", next: "." };

    pub(super) fn text(text: impl Into<Cow<'static, str>>) -> Doc {
        Doc::Text(text.into())
    }

    pub(super) fn row(parts: impl Into<Vec<Doc>>) -> Doc {
        Doc::Row(parts.into())
    }

    pub(super) fn nest(inner: Doc) -> Doc {
        Doc::Nest(Box::new(inner))
    }
}

/// Lays out `doc` on lines of at most `width` bytes where possible, without a line break at the end.
pub(super) fn laid_out(doc: &Doc, width: usize) -> String {
    let mut row = Pieces::default();
    row.push(doc);
    let spaces = SPACES_ALWAYS + SPACES_PER_BYTE * row.flat;
    let mut page = Page {
        out: String::with_capacity(row.flat),
        width,
        column: 0,
        edge: width,
        unbroken: 0,
        indents: Vec::new(),
        spaces,
    };
    for piece in &row.pieces {
        page.put(piece);
    }
    page.out
}

/// One piece of a document in reading order. Positions refer to the document on a single line.
enum Piece<'d> {
    Text(&'d str),
    Break { flat: &'static str, next: &'static str, end: usize },
    NewLine { end: usize },
    Open { end: usize },
    Close,
}

#[derive(Default)]
struct Pieces<'d> {
    pieces: Vec<Piece<'d>>,
    flat: usize,
}

impl<'d> Pieces<'d> {
    fn push(&mut self, doc: &'d Doc) {
        match doc {
            Doc::Text(text) => {
                self.flat += text.len();
                self.pieces.push(Piece::Text(text));
            }
            Doc::Break { flat, next } => {
                self.flat += flat.len();
                self.pieces.push(Piece::Break { flat, next, end: self.flat });
            }
            Doc::NewLine => self.pieces.push(Piece::NewLine { end: self.flat }),
            Doc::Row(parts) => parts.iter().for_each(|part| self.push(part)),
            Doc::Nest(inner) => {
                let open = self.pieces.len();
                self.pieces.push(Piece::Open { end: 0 });
                self.push(inner);
                self.pieces[open] = Piece::Open { end: self.flat };
                self.pieces.push(Piece::Close);
            }
        }
    }
}

/// The state of the output.
struct Page {
    out: String,
    width: usize,
    column: usize,
    /// Position, in the document on a single line, up to which text fits on the current line.
    edge: usize,
    /// The number of enclosing nests that fit on the line.
    unbroken: usize,
    indents: Vec<usize>,
    /// Remaining budget of spaces for indentation.
    spaces: usize,
}

impl Page {
    fn put(&mut self, piece: &Piece<'_>) {
        match *piece {
            Piece::Text(text) => self.write(text),
            Piece::Break { flat, .. } if self.unbroken > 0 => self.write(flat),
            Piece::Break { next, end, .. } => self.next_line(next, end),
            Piece::NewLine { end } => self.next_line("", end),
            Piece::Open { end } => {
                self.indents.push(self.column);
                let fits = self.unbroken > 0 || end <= self.edge;
                self.unbroken = if fits { self.unbroken + 1 } else { 0 };
            }
            Piece::Close => {
                self.unbroken = self.unbroken.saturating_sub(1);
                self.indents.pop();
            }
        }
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.len();
    }

    fn next_line(&mut self, next: &str, end: usize) {
        let indent = self.indents.last().copied().filter(|indent| *indent <= self.spaces).unwrap_or(0);
        self.spaces -= indent;
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
        self.write(next);
        self.unbroken = 0;
        self.edge = (end + self.width).saturating_sub(self.column);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &'static str, args: Vec<Doc>) -> Doc {
        let mut row = Vec::new();
        for arg in args {
            if !row.is_empty() {
                row.extend([Doc::text(","), Doc::SPACE]);
            }
            row.push(arg);
        }
        Doc::row([Doc::text(name), Doc::text("("), Doc::nest(Doc::Row(row)), Doc::text(")")])
    }

    fn chain(links: Vec<Doc>) -> Doc {
        let mut row = Vec::new();
        for link in links {
            row.extend([if row.is_empty() { Doc::text(".") } else { Doc::DOT }, link]);
        }
        Doc::row([Doc::text("r"), Doc::nest(Doc::Row(row))])
    }

    #[track_caller]
    fn check(doc: &Doc, width: usize, lines: &[&str]) {
        assert_eq!(laid_out(doc, width), lines.join("\n"), "{width} bytes wide");
    }

    #[test]
    fn text_is_never_broken_and_breaks_in_no_nest_always_are() {
        check(&Doc::text("a long word"), 3, &["a long word"]);
        check(&Doc::row([Doc::text("one"), Doc::SPACE, Doc::text("two")]), 80, &["one", "two"]);
    }

    #[test]
    fn a_nest_is_broken_where_it_does_not_fit() {
        let words = Doc::nest(Doc::row([Doc::text("one"), Doc::SPACE, Doc::text("two")]));
        check(&words, 7, &["one two"]);
        check(&words, 6, &["one", "two"]);
    }

    #[test]
    fn of_a_nest_all_breaks_are_broken_and_a_chain_not_at_its_first_dot() {
        let words = chain((0..4).map(|_| call("go", vec![])).collect());
        check(&words, 21, &["r.go().go().go().go()"]);
        check(&words, 20, &["r.go()", " .go()", " .go()", " .go()"]);
        check(&words, 1, &["r.go()", " .go()", " .go()", " .go()"]);
    }

    #[test]
    fn an_inner_nest_that_fits_stays_on_its_line() {
        let sum = || call("sum", vec![Doc::text("1"), Doc::text("22")]);
        let words = chain(vec![sum(), call("mul", vec![sum(), sum()])]);
        check(&words, 80, &["r.sum(1, 22).mul(sum(1, 22), sum(1, 22))"]);
        check(&words, 30, &["r.sum(1, 22)", " .mul(sum(1, 22), sum(1, 22))"]);
        check(&words, 20, &["r.sum(1, 22)", " .mul(sum(1, 22),", "      sum(1, 22))"]);
    }

    #[test]
    fn a_line_that_must_end_breaks_the_rest_of_its_nest() {
        let body =
            Doc::nest(Doc::row([Doc::text("{"), Doc::NewLine, Doc::text("a"), Doc::SPACE, Doc::text("b")]));
        check(&Doc::row([Doc::text("f "), body]), 80, &["f {", "  a", "  b"]);
    }

    #[test]
    fn indenting_below_a_long_string_takes_no_more_room_than_the_text_may() {
        let long = "x".repeat(100_000);
        let many = (0..10_000).map(|_| Doc::text("1")).collect();
        let text = laid_out(&Doc::row([Doc::text(long), call("", many)]), 80);
        assert!(text.len() < SPACES_ALWAYS + 2 * SPACES_PER_BYTE * 140_000);
        assert!(text.ends_with("\n1,\n1)"));
    }
}
