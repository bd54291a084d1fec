//! Pipelines, and their partial results.

use std::collections::{BTreeSet, HashMap};

use datum::Datum;

use super::steps::tagged;
use super::{Codec, Packer, UnpackError, Unpacker};
use crate::closure::Closure;
use crate::pipeline::{Pipeline, Tally};
use crate::terminal::{Partial, Terminal};

impl Codec for Pipeline {
    fn pack(&self, out: &mut Packer) {
        self.steps.pack(out);
        self.group.pack(out);
        self.grouped_steps.pack(out);
        self.terminal.pack(out);
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(Pipeline {
            steps: Vec::unpack(from)?,
            group: Option::unpack(from)?,
            grouped_steps: Vec::unpack(from)?,
            terminal: Terminal::unpack(from)?,
        })
    }
}

impl Codec for Terminal {
    fn pack(&self, out: &mut Packer) {
        match self {
            Terminal::Collect => out.byte(0),
            Terminal::Count => out.byte(1),
            Terminal::Sum(selector) => tagged(2, selector, out),
            Terminal::Avg(selector) => tagged(3, selector, out),
            Terminal::Min(selector) => tagged(4, selector, out),
            Terminal::Max(selector) => tagged(5, selector, out),
            Terminal::Reduce(closure) => tagged(6, closure, out),
            Terminal::Distinct => out.byte(7),
            Terminal::Top { orders, most } => {
                tagged(8, orders, out);
                most.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(match from.byte()? {
            0 => Terminal::Collect,
            1 => Terminal::Count,
            2 => Terminal::Sum(Option::unpack(from)?),
            3 => Terminal::Avg(Option::unpack(from)?),
            4 => Terminal::Min(Option::unpack(from)?),
            5 => Terminal::Max(Option::unpack(from)?),
            6 => Terminal::Reduce(Closure::unpack(from)?),
            7 => Terminal::Distinct,
            8 => Terminal::Top { orders: Vec::unpack(from)?, most: from.size()? },
            _ => return Err(from.invalid("a terminal")),
        })
    }
}

impl Codec for Partial {
    fn pack(&self, out: &mut Packer) {
        match self {
            Partial::Items(items) => tagged(0, items, out),
            Partial::Count(count) => tagged(1, count, out),
            Partial::Sum { sum, count } => {
                // The sum may be infinite, which is an error only when it is finished.
                out.byte(2);
                out.raw(&sum.to_le_bytes());
                count.pack(out);
            }
            Partial::Best(best) => tagged(3, best, out),
            Partial::Reduced(reduced) => tagged(4, reduced, out),
            Partial::Set(set) => {
                out.byte(5);
                out.list(set.iter());
            }
            Partial::Top(items) => tagged(6, items, out),
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(match from.byte()? {
            0 => Partial::Items(Vec::unpack(from)?),
            1 => Partial::Count(from.count()?),
            2 => Partial::Sum { sum: f64::from_le_bytes(from.array()?), count: from.count()? },
            3 => Partial::Best(Option::unpack(from)?),
            4 => Partial::Reduced(Option::unpack(from)?),
            5 => Partial::Set(from.list(Datum::unpack)?.into_iter().collect::<BTreeSet<_>>()),
            6 => Partial::Top(Vec::unpack(from)?),
            _ => return Err(from.invalid("a partial result")),
        })
    }
}

impl Codec for Tally {
    fn pack(&self, out: &mut Packer) {
        match self {
            Tally::Whole(partial) => tagged(0, partial, out),
            Tally::Groups { groups, collected } => {
                out.byte(1);
                collected.pack(out);
                out.count(groups.len() as u64);
                for (key, partial) in groups {
                    key.pack(out);
                    partial.pack(out);
                }
            }
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        match from.byte()? {
            0 => Partial::unpack(from).map(Tally::Whole),
            1 => {
                let collected = from.size()?;
                let groups: HashMap<_, _> = from.list(<(Datum, Partial)>::unpack)?.into_iter().collect();
                Ok(Tally::Groups { groups, collected })
            }
            _ => Err(from.invalid("a tally")),
        }
    }
}
