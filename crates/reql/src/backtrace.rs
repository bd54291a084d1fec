//! The way from the root of a query to the term that failed.
//!
//! Frames are pushed while an error unwinds, innermost first; drivers read them from the root.

use std::fmt;

use datum::{Datum, Text};

/// One step from a term to the argument that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A positional argument, counted from 0.
    Argument(u32),
    /// An optional argument, or the member of an object.
    Optional(Text),
}

impl From<usize> for Frame {
    fn from(index: usize) -> Self {
        Frame::Argument(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl From<&Text> for Frame {
    fn from(name: &Text) -> Self {
        Frame::Optional(name.clone())
    }
}

impl From<&str> for Frame {
    fn from(name: &str) -> Self {
        Frame::Optional(Text::from(name))
    }
}

/// Frames from the root term to the failing term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backtrace {
    /// Innermost first: an error grows outwards as it unwinds.
    inner_first: Vec<Frame>,
}

impl Backtrace {
    /// Adds the step that leads, from one term further out, to what is known so far.
    pub fn push_outer(&mut self, frame: Frame) {
        self.inner_first.push(frame);
    }

    /// The frames from the root inwards.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.inner_first.iter().rev()
    }

    /// The frames as drivers receive them: numbers and names, from the root inwards.
    #[must_use]
    pub fn to_datum(&self) -> Datum {
        let frames = self.frames().map(|frame| match frame {
            Frame::Argument(index) => Datum::Number(f64::from(*index)),
            Frame::Optional(name) => Datum::String(name.clone()),
        });
        Datum::from(frames.collect::<Vec<_>>())
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, frame) in self.frames().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            match frame {
                Frame::Argument(index) => write!(f, "{separator}{index}")?,
                Frame::Optional(name) => write!(f, "{separator}{name}")?,
            }
        }
        f.write_str("]")
    }
}
