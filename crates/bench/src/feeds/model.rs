//! The rows of the table as the write load knows them, the next write, and the event that a feed must have from it.
//!
//! Each write has a sequence number, which becomes the field `seq` of its row; an event is recognized by the sequence
//! numbers of its two sides. Rows of one block are never written by two writes at the same time, so the order of their
//! commits, and with it every event, is known in advance.

use super::block::{Block, LIMIT_ROWS, ROWS_PER_BLOCK};
use super::kind::FeedKind;

/// Added to the rank of a row that is not to be among the first.
const RANK_BEHIND: i64 = 5;
/// The group of rows that no filter finds.
pub const NO_GROUP: i64 = -1;

/// A row at one point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Primary key.
    pub id: u64,
    /// Sequence number of the write that made it, 0 for a loaded row.
    pub seq: u64,
    /// The value that `filter` compares.
    pub group: i64,
    /// The indexed value.
    pub rank: i64,
}

impl Row {
    /// The row number `id` as it is loaded, of a table with `blocks` blocks.
    pub fn loaded(id: u64, blocks: u32) -> Row {
        let block = id / ROWS_PER_BLOCK;
        if block >= u64::from(blocks) {
            return Row { id, seq: 0, group: NO_GROUP, rank: -1 - id as i64 };
        }
        let block = Block(block as u32);
        let member = id - block.first_row();
        Row { id, seq: 0, group: i64::from(block.0), rank: block.first_rank() + member as i64 }
    }

    fn version(&self) -> Version {
        Version { id: self.id, seq: self.seq }
    }
}

/// One version of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// Primary key.
    pub id: u64,
    /// Sequence number of the write that made it.
    pub seq: u64,
}

/// The two sides of an event. No two writes have equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// `old_val`.
    pub old: Option<Version>,
    /// `new_val`.
    pub new: Option<Version>,
}

impl Change {
    /// `None` if both sides are missing: then there is no event.
    fn of(old: Option<Version>, new: Option<Version>) -> Option<Change> {
        (old.is_some() || new.is_some()).then_some(Change { old, new })
    }

    /// The document of the event.
    pub fn document(&self) -> Option<u64> {
        self.new.or(self.old).map(|version| version.id)
    }
}

/// A write to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The row after it.
    pub row: Row,
    /// The feed that has the row, and its event.
    pub event: Option<(u32, Change)>,
    /// The event of feeds of the whole table.
    pub of_table: Change,
}

/// All rows. A row is known as it is after the last acknowledged write.
pub struct Model {
    kinds: Vec<FeedKind>,
    rows: Vec<Row>,
    /// By block, then by row without a block: whether a write without a known outcome is under way.
    busy: Vec<bool>,
    /// Acknowledged writes of each block.
    written: Vec<u64>,
    next_block: usize,
    next_other: usize,
}

impl Model {
    /// A loaded table with a block for each of the feeds `kinds`, and `others` more rows.
    pub fn new(kinds: Vec<FeedKind>, others: u64) -> Model {
        let blocks = kinds.len() as u32;
        let rows = (0..u64::from(blocks) * ROWS_PER_BLOCK + others).map(|id| Row::loaded(id, blocks));
        Model {
            busy: vec![false; kinds.len() + others as usize],
            written: vec![0; kinds.len()],
            rows: rows.collect(),
            kinds,
            next_block: 0,
            next_other: 0,
        }
    }

    pub fn kinds(&self) -> &[FeedKind] {
        &self.kinds
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The next write of a row that a feed has, with sequence number `seq`; `None` while each block has one under way.
    pub fn write_matching(&mut self, seq: u64) -> Option<Write> {
        let count = self.kinds.len();
        let block =
            (0..count).map(|step| (self.next_block + step) % count).find(|block| !self.busy[*block])?;
        self.next_block = block + 1;
        self.busy[block] = true;
        let kind = self.kinds[block];
        let before = self.block_rows(block);
        let changed = next_row(kind, &before, self.written[block], seq, Block(block as u32));
        let after = before.map(|row| if row.id == changed.id { changed } else { row });
        let event = event_of(kind, &before, &after, changed.id).map(|change| (block as u32, change));
        Some(self.write_of(changed, event))
    }

    /// The next write of a row that no feed of a block has; `None` while each has one under way.
    pub fn write_other(&mut self, seq: u64) -> Option<Write> {
        let blocks = self.kinds.len();
        let count = self.busy.len() - blocks;
        let other =
            (0..count).map(|step| (self.next_other + step) % count).find(|n| !self.busy[blocks + n])?;
        self.next_other = other + 1;
        self.busy[blocks + other] = true;
        let row = self.rows[blocks * ROWS_PER_BLOCK as usize + other];
        Some(self.write_of(Row { seq, ..row }, None))
    }

    /// Takes the outcome of a write: whether it was carried out. Without an outcome, its rows are not written again.
    pub fn settle(&mut self, write: &Write, is_done: bool) {
        let row = write.row.id as usize;
        let block = row / ROWS_PER_BLOCK as usize;
        let blocks = self.kinds.len();
        if is_done {
            self.rows[row] = write.row;
        }
        if block >= blocks {
            self.busy[blocks + row - blocks * ROWS_PER_BLOCK as usize] = false;
            return;
        }
        self.busy[block] = false;
        self.written[block] += u64::from(is_done);
    }

    fn block_rows(&self, block: usize) -> [Row; ROWS_PER_BLOCK as usize] {
        let first = Block(block as u32).first_row() as usize;
        std::array::from_fn(|member| self.rows[first + member])
    }

    fn write_of(&self, row: Row, event: Option<(u32, Change)>) -> Write {
        let old = Some(self.rows[row.id as usize].version());
        Write { row, event, of_table: Change { old, new: Some(row.version()) } }
    }
}

/// The row that write number `nth` of a block makes. Rows enter and leave filters and the first rows of an order.
fn next_row(kind: FeedKind, rows: &[Row; ROWS_PER_BLOCK as usize], nth: u64, seq: u64, block: Block) -> Row {
    let member = match kind {
        FeedKind::Document => 0,
        FeedKind::Range | FeedKind::Filter | FeedKind::Table => nth % ROWS_PER_BLOCK,
        FeedKind::Limit => nth % LIMIT_ROWS as u64,
    };
    let mut row = Row { seq, ..rows[member as usize] };
    match kind {
        FeedKind::Filter if member >= 2 => {
            row.group = if row.group == NO_GROUP { i64::from(block.0) } else { NO_GROUP };
        }
        FeedKind::Limit if member == 0 => {
            let front = block.first_rank();
            row.rank = if row.rank == front { front + RANK_BEHIND } else { front };
        }
        _ => {}
    }
    row
}

/// The event of a feed whose block had the rows `before` and has the rows `after`, where row `changed` differs.
fn event_of(kind: FeedKind, before: &[Row], after: &[Row], changed: u64) -> Option<Change> {
    let version = |rows: &[Row], has: &dyn Fn(&Row) -> bool| {
        rows.iter().find(|row| row.id == changed && has(row)).map(Row::version)
    };
    let first = before[0].id;
    let has: &dyn Fn(&Row) -> bool = match kind {
        FeedKind::Limit => return event_of_first(before, after, changed),
        FeedKind::Document => &|row| row.id == first,
        FeedKind::Filter => &|row| row.group != NO_GROUP,
        FeedKind::Range | FeedKind::Table => &|_| true,
    };
    Change::of(version(before, has), version(after, has))
}

/// The same for a feed of the first rows by rank: one row leaves and one enters, or the changed one is in both.
fn event_of_first(before: &[Row], after: &[Row], changed: u64) -> Option<Change> {
    let (before, after) = (first_rows(before), first_rows(after));
    let is_in = |rows: &[Row], row: &Row| rows.iter().any(|one| one.id == row.id);
    let left = before.iter().find(|row| !is_in(&after, row) || row.id == changed);
    let entered = after.iter().find(|row| !is_in(&before, row) || row.id == changed);
    Change::of(left.map(Row::version), entered.map(Row::version))
}

fn first_rows(rows: &[Row]) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| (row.rank, row.id));
    rows.truncate(LIMIT_ROWS);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(id: u64, seq: u64) -> Option<Version> {
        Some(Version { id, seq })
    }

    /// The events of the first `count` writes, each acknowledged before the next.
    fn events(kind: FeedKind, count: u64) -> Vec<Change> {
        let mut model = Model::new(vec![kind], 1);
        let write = |seq| {
            let write = model.write_matching(seq).expect("a write");
            model.settle(&write, true);
            write.event.expect("an event").1
        };
        (1..=count).map(write).collect()
    }

    #[test]
    fn a_document_and_a_range_have_each_write_of_their_rows() {
        let change = |id, old, new| Change { old: version(id, old), new: version(id, new) };
        assert_eq!(events(FeedKind::Document, 2), [change(0, 0, 1), change(0, 1, 2)]);
        let range = events(FeedKind::Range, 5);
        assert_eq!(range[..2], [change(0, 0, 1), change(1, 0, 2)]);
        assert_eq!(range[4], change(0, 1, 5));
    }

    #[test]
    fn rows_leave_and_enter_a_filter() {
        let seen = events(FeedKind::Filter, 8);
        assert_eq!(seen[2], Change { old: version(2, 0), new: None });
        assert_eq!(seen[6], Change { old: None, new: version(2, 7) });
    }

    #[test]
    fn a_row_that_leaves_the_first_rows_is_replaced_in_one_event() {
        let seen = events(FeedKind::Limit, 4);
        assert_eq!(seen[0], Change { old: version(0, 0), new: version(2, 0) });
        assert_eq!(seen[1], Change { old: version(1, 0), new: version(1, 2) });
        assert_eq!(seen[2], Change { old: version(2, 0), new: version(0, 3) });
    }

    #[test]
    fn rows_with_a_write_under_way_are_left_alone() {
        let mut model = Model::new(vec![FeedKind::Document; 2], 1);
        let first = model.write_matching(1).expect("a write");
        assert_eq!(model.write_matching(2).map(|write| write.row.id), Some(ROWS_PER_BLOCK));
        assert_eq!(model.write_matching(3), None);
        assert_eq!(model.write_other(3).map(|write| (write.row.id, write.event)), Some((8, None)));
        assert_eq!(model.write_other(4), None);
        model.settle(&first, false);
        let again = model.write_matching(5).expect("a write");
        assert_eq!(again.of_table.old, version(0, 0), "the refused write changed nothing");
    }
}
