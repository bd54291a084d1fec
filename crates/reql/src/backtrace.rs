//! The way from the root of a query to the term that failed.
//!
//! Frames are pushed while an error unwinds, innermost first; drivers read them from the root.

use std::fmt;
use std::sync::Arc;

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

/// The way from the root of a query to a function in it. Functions below the same terms share what
/// their ways begin with, so that all ways of a query take no more room than its terms.
#[derive(Debug)]
pub struct Way {
    /// The way to the term around; nothing at the root.
    outer: Option<Arc<Way>>,
    frame: Frame,
}

impl Way {
    /// The way to the argument `frame` of the term that `outer` leads to.
    #[must_use]
    pub fn new(outer: Option<Arc<Way>>, frame: Frame) -> Way {
        Way { outer, frame }
    }

    /// The way to the term around; nothing at the root.
    #[must_use]
    pub fn outer(&self) -> Option<&Arc<Way>> {
        self.outer.as_ref()
    }

    /// The frames from the function outwards.
    pub fn outwards(&self) -> impl Iterator<Item = &Frame> {
        self.ends().map(|way| &way.frame)
    }

    /// The frames from where `around` ends up to the function, if its way begins with that one.
    #[must_use]
    pub fn beyond(&self, around: &Way) -> Option<Vec<&Frame>> {
        let shared = self.ends().position(|way| std::ptr::eq(way, around))?;
        let mut frames: Vec<&Frame> = self.outwards().take(shared).collect();
        frames.reverse();
        Some(frames)
    }

    /// The way itself, the one to the term around, and so on outwards.
    fn ends(&self) -> impl Iterator<Item = &Way> {
        std::iter::successors(Some(self), |way| way.outer.as_deref())
    }
}

// A way may be tens of thousands of frames long: it is dropped one by one, not by recursion.
impl Drop for Way {
    fn drop(&mut self) {
        let mut outer = self.outer.take();
        while let Some(mut way) = outer.and_then(Arc::into_inner) {
            outer = way.outer.take();
        }
    }
}

/// Frames from the root term to the failing term.
#[derive(Clone, Debug, Default)]
pub struct Backtrace {
    /// Innermost first: an error grows outwards as it unwinds.
    inner_first: Vec<Frame>,
    /// What leads to the first of them, once the error left a function whose place is known.
    anchor: Option<Arc<Way>>,
    /// Whether it stays without frames.
    is_bare: bool,
}

impl Backtrace {
    /// One without frames, which gets none.
    #[must_use]
    pub fn bare() -> Backtrace {
        Backtrace { is_bare: true, ..Backtrace::default() }
    }

    /// Adds the step that leads, from one term further out, to what is known so far. When the whole
    /// way is known already there is nothing to add.
    pub fn push_outer(&mut self, frame: Frame) {
        if self.anchor.is_none() && !self.is_bare {
            self.inner_first.push(frame);
        }
    }

    /// Completes the way: what is known so far begins where `way` ends. A function is called by
    /// whoever pulls at the stream it is a step of, often far from the term it stands in.
    pub fn anchor(&mut self, way: &Arc<Way>) {
        if self.anchor.is_none() && !self.is_bare {
            self.anchor = Some(way.clone());
        }
    }

    /// What [`Backtrace::anchor`] completed it with.
    #[must_use]
    pub fn anchored(&self) -> Option<&Arc<Way>> {
        self.anchor.as_ref()
    }

    /// The frames that are not of [`Backtrace::anchored`], innermost first.
    #[must_use]
    pub fn inner_first(&self) -> &[Frame] {
        &self.inner_first
    }

    /// The frames from the root inwards.
    #[must_use]
    pub fn frames(&self) -> Vec<&Frame> {
        let anchor = self.anchor.iter().flat_map(|way| way.outwards());
        let mut frames: Vec<&Frame> = self.inner_first.iter().chain(anchor).collect();
        frames.reverse();
        frames
    }

    /// The frames as drivers receive them: numbers and names, from the root inwards.
    #[must_use]
    pub fn to_datum(&self) -> Datum {
        let frames = self.frames().into_iter().map(|frame| match frame {
            Frame::Argument(index) => Datum::Number(f64::from(*index)),
            Frame::Optional(name) => Datum::String(name.clone()),
        });
        Datum::from(frames.collect::<Vec<_>>())
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, frame) in self.frames().into_iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            match frame {
                Frame::Argument(index) => write!(f, "{separator}{index}")?,
                Frame::Optional(name) => write!(f, "{separator}{name}")?,
            }
        }
        f.write_str("]")
    }
}

impl PartialEq for Backtrace {
    fn eq(&self, other: &Self) -> bool {
        self.frames() == other.frames()
    }
}

impl Eq for Backtrace {}
