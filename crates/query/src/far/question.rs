//! Questions as bytes: docs/formats/question.md.

use bytes::Bytes;
use cluster::ServerId;
use datum::{KeyRange, PrimaryKey, Text, Time};
use log::Durability;
use reql::travel::{Garbled, Pack, Travel, Unpack};
use reql::{Pipeline, Transform};
use storage::TableId;
use uuid::Uuid;

use super::part::{Part, mode_number, pack_ranges, pack_table, unpack_mode, unpack_ranges, unpack_table};
use super::rules::Rules;
use crate::context::Surroundings;
use crate::edit::{Edit, ReturnChanges};
use crate::table::{Identifiers, ReadMode};

/// The version all questions begin with.
const VERSION: u8 = 4;

/// The kinds of questions that can be stopped by their number, which comes next.
const WRITE: u8 = 2;
const COUNT: u8 = 3;
const GATHER: u8 = 4;
const OPEN: u8 = 5;
const FEW: u8 = 12;

/// No key is longer: an entry of the log has two bytes for its length.
const KEY_BYTES_MAX: usize = 65_535;

/// What one node asks of another.
pub(crate) enum Question {
    /// The rows under some keys.
    Get { table: TableId, mode: ReadMode, keys: Vec<PrimaryKey> },
    /// Writing the rows under some keys.
    Write(WriteQuestion),
    /// The number of rows in some ranges.
    Count { ticket: u64, part: Part },
    /// What becomes of all rows of some ranges.
    Gather { ticket: u64, part: Part, around: Surroundings, pipeline: Pipeline },
    /// The first rows of a range, after some steps, and a cursor for the rest.
    Open { cursor: u64, part: Part, around: Surroundings, steps: Vec<Transform> },
    /// The next rows of a cursor.
    Next { cursor: u64 },
    /// No more rows of a cursor are wanted.
    Close { cursor: u64 },
    /// Waiting until everything written to some ranges is on disk.
    Sync { table: TableId, ranges: Vec<KeyRange> },
    /// The rows of a system table, as the node asked knows them.
    System { table: Text, identifiers: Identifiers, user: Text },
    /// Stopping a query, if the node asked runs it.
    StopJob { id: Uuid },
    /// Whether an index names so few rows of some ranges that they are worth finding by it.
    Few { ticket: u64, part: Part },
    /// Stopping the question of that number, if it is still being answered.
    Cancel { ticket: u64 },
}

/// Writing some rows of a table.
pub(crate) struct WriteQuestion {
    /// By which it can be stopped while the functions of its edits run.
    pub ticket: u64,
    pub table: TableId,
    pub durability: Option<Durability>,
    pub ignore_hook: bool,
    pub show: ReturnChanges,
    pub rules: Rules,
    pub around: Surroundings,
    pub keys: Vec<PrimaryKey>,
    pub edits: Edits,
}

/// What becomes of rows.
pub(crate) enum Edits {
    /// The same of all.
    One(Edit),
    /// Of each its own.
    Each(Vec<Edit>),
}

impl Question {
    /// The bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Pack::with_capacity(64);
        out.byte(VERSION);
        self.pack(&mut out);
        out.finish()
    }

    /// The question that `bytes` are.
    pub fn from_bytes(bytes: Bytes) -> Result<Question, Garbled> {
        let mut from = Unpack::new(bytes);
        if from.byte()? != VERSION {
            return Err(from.garbled("a question of a version that is known"));
        }
        let question = Question::unpack(&mut from)?;
        from.end()?;
        Ok(question)
    }

    /// The number by which it can be stopped, if it can be.
    pub fn number(&self) -> Option<u64> {
        match self {
            Question::Write(write) => Some(write.ticket),
            Question::Count { ticket, .. }
            | Question::Gather { ticket, .. }
            | Question::Few { ticket, .. } => Some(*ticket),
            Question::Open { cursor, .. } => Some(*cursor),
            _ => None,
        }
    }

    /// The [`Question::number`] of the question that `bytes` are, without reading the rest.
    pub fn number_of(bytes: &Bytes) -> Option<u64> {
        let mut from = Unpack::new(bytes.clone());
        match (from.byte().ok()?, from.byte().ok()?) {
            (VERSION, WRITE | COUNT | GATHER | OPEN | FEW) => from.count().ok(),
            _ => None,
        }
    }

    fn pack(&self, out: &mut Pack) {
        match self {
            Question::Get { table, mode, keys } => {
                out.byte(1);
                pack_table(*table, out);
                out.byte(mode_number(*mode));
                pack_keys(keys, out);
            }
            Question::Write(write) => {
                out.byte(WRITE);
                write.pack(out);
            }
            Question::Count { ticket, part } => {
                tagged(COUNT, *ticket, out);
                part.pack(out);
            }
            Question::Gather { ticket, part, around, pipeline } => {
                tagged(GATHER, *ticket, out);
                part.pack(out);
                around.pack(out);
                pipeline.pack(out);
            }
            Question::Open { cursor, part, around, steps } => {
                tagged(OPEN, *cursor, out);
                part.pack(out);
                around.pack(out);
                steps.pack(out);
            }
            Question::Next { cursor } => tagged(6, *cursor, out),
            Question::Close { cursor } => tagged(7, *cursor, out),
            Question::Sync { table, ranges } => {
                out.byte(8);
                pack_table(*table, out);
                pack_ranges(ranges, out);
            }
            Question::System { table, identifiers, user } => {
                out.byte(9);
                table.pack(out);
                (*identifiers == Identifiers::Uuid).pack(out);
                user.pack(out);
            }
            Question::StopJob { id } => {
                out.byte(10);
                out.raw(id.as_bytes());
            }
            Question::Cancel { ticket } => tagged(11, *ticket, out),
            Question::Few { ticket, part } => {
                tagged(FEW, *ticket, out);
                part.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpack) -> Result<Question, Garbled> {
        Ok(match from.byte()? {
            1 => Question::Get {
                table: unpack_table(from)?,
                mode: unpack_mode(from)?,
                keys: unpack_keys(from)?,
            },
            WRITE => Question::Write(WriteQuestion::unpack(from)?),
            COUNT => Question::Count { ticket: from.count()?, part: Part::unpack(from)? },
            GATHER => Question::Gather {
                ticket: from.count()?,
                part: Part::unpack(from)?,
                around: Surroundings::unpack(from)?,
                pipeline: Pipeline::unpack(from)?,
            },
            OPEN => Question::Open {
                cursor: from.count()?,
                part: Part::unpack(from)?,
                around: Surroundings::unpack(from)?,
                steps: Vec::unpack(from)?,
            },
            6 => Question::Next { cursor: from.count()? },
            7 => Question::Close { cursor: from.count()? },
            8 => Question::Sync { table: unpack_table(from)?, ranges: unpack_ranges(from)? },
            9 => Question::System {
                table: Text::unpack(from)?,
                identifiers: match bool::unpack(from)? {
                    true => Identifiers::Uuid,
                    false => Identifiers::Name,
                },
                user: Text::unpack(from)?,
            },
            10 => Question::StopJob { id: Uuid::from_bytes(from.array()?) },
            11 => Question::Cancel { ticket: from.count()? },
            FEW => Question::Few { ticket: from.count()?, part: Part::unpack(from)? },
            _ => return Err(from.garbled("a kind of question")),
        })
    }
}

fn tagged(kind: u8, number: u64, out: &mut Pack) {
    out.byte(kind);
    out.count(number);
}

impl Travel for WriteQuestion {
    fn pack(&self, out: &mut Pack) {
        out.count(self.ticket);
        pack_table(self.table, out);
        out.byte(match self.durability {
            None => 0,
            Some(Durability::Hard) => 1,
            Some(Durability::Soft) => 2,
        });
        out.byte(u8::from(self.ignore_hook));
        out.byte(match self.show {
            ReturnChanges::No => 0,
            ReturnChanges::Changed => 1,
            ReturnChanges::Always => 2,
        });
        self.rules.pack(out);
        self.around.pack(out);
        pack_keys(&self.keys, out);
        match &self.edits {
            Edits::One(edit) => {
                out.byte(0);
                edit.pack(out);
            }
            Edits::Each(edits) => {
                out.byte(1);
                edits.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpack) -> Result<Self, Garbled> {
        let (ticket, table) = (from.count()?, unpack_table(from)?);
        let durability = match from.byte()? {
            0 => None,
            1 => Some(Durability::Hard),
            2 => Some(Durability::Soft),
            _ => return Err(from.garbled("a durability")),
        };
        let ignore_hook = match from.byte()? {
            0 => false,
            1 => true,
            _ => return Err(from.garbled("whether a write passes the hook")),
        };
        let show = match from.byte()? {
            0 => ReturnChanges::No,
            1 => ReturnChanges::Changed,
            2 => ReturnChanges::Always,
            _ => return Err(from.garbled("what a write shows")),
        };
        let (rules, around) = (Rules::unpack(from)?, Surroundings::unpack(from)?);
        let keys = unpack_keys(from)?;
        let edits = match from.byte()? {
            0 => Edits::One(Edit::unpack(from)?),
            1 => Edits::Each(from.list(Edit::unpack)?),
            _ => return Err(from.garbled("edits")),
        };
        match &edits {
            Edits::Each(each) if each.len() != keys.len() => Err(from.garbled("an edit for each key")),
            _ => {
                Ok(WriteQuestion { ticket, table, durability, ignore_hook, show, rules, around, keys, edits })
            }
        }
    }
}

impl Edits {
    /// What becomes of the row at `index`, which is one of the keys'.
    pub fn at(&self, index: usize) -> &Edit {
        match self {
            Edits::One(edit) => edit,
            Edits::Each(edits) => &edits[index],
        }
    }
}

impl Travel for Surroundings {
    fn pack(&self, out: &mut Pack) {
        self.now.pack(out);
        self.array_limit.pack(out);
        out.raw(&self.seed.to_le_bytes());
        self.globals.pack(out);
    }

    fn unpack(from: &mut Unpack) -> Result<Self, Garbled> {
        Ok(Surroundings {
            now: Time::unpack(from)?,
            array_limit: from.size()?,
            seed: u64::from_le_bytes(from.array()?),
            globals: Vec::unpack(from)?,
        })
    }
}

fn pack_keys(keys: &[PrimaryKey], out: &mut Pack) {
    out.count(keys.len() as u64);
    keys.iter().for_each(|key| out.bytes(key.as_bytes()));
}

fn unpack_keys(from: &mut Unpack) -> Result<Vec<PrimaryKey>, Garbled> {
    from.list(|from| {
        let key = PrimaryKey(from.bytes()?);
        if key.0.len() <= KEY_BYTES_MAX { Ok(key) } else { Err(from.garbled("a key")) }
    })
}

/// A server, if there is one.
pub(super) fn pack_server(server: Option<ServerId>, out: &mut Pack) {
    out.byte(u8::from(server.is_some()));
    server.iter().for_each(|server| out.raw(server.0.as_bytes()));
}

/// What [`pack_server`] wrote.
pub(super) fn unpack_server(from: &mut Unpack) -> Result<Option<ServerId>, Garbled> {
    Ok(match bool::unpack(from)? {
        true => Some(ServerId(Uuid::from_bytes(from.array()?))),
        false => None,
    })
}
