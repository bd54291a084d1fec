//! The path from the root of a query to the term that failed.
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

/// The path from the root of the query to a function in it. Functions below the same terms share the start of their
/// paths, so that all paths of a query take no more memory than its terms.
#[derive(Debug)]
pub struct TermPath {
    /// The path to the enclosing term; `None` at the root.
    outer: Option<Arc<TermPath>>,
    frame: Frame,
}

impl TermPath {
    /// The path to the argument `frame` of the term at `outer`.
    #[must_use]
    pub fn new(outer: Option<Arc<TermPath>>, frame: Frame) -> TermPath {
        TermPath { outer, frame }
    }

    /// The path to the enclosing term; `None` at the root.
    #[must_use]
    pub fn outer(&self) -> Option<&Arc<TermPath>> {
        self.outer.as_ref()
    }

    /// The frames, innermost first.
    pub fn outwards(&self) -> impl Iterator<Item = &Frame> {
        self.ends().map(|path| &path.frame)
    }

    /// The frames between the end of `around` and the function, if `around` is the start of this path.
    #[must_use]
    pub fn beyond(&self, around: &TermPath) -> Option<Vec<&Frame>> {
        let shared = self.ends().position(|path| std::ptr::eq(path, around))?;
        let mut frames: Vec<&Frame> = self.outwards().take(shared).collect();
        frames.reverse();
        Some(frames)
    }

    /// This path, then the path to the enclosing term, and so on up to the root.
    fn ends(&self) -> impl Iterator<Item = &TermPath> {
        std::iter::successors(Some(self), |path| path.outer.as_deref())
    }
}

// A path may have tens of thousands of frames, so it is dropped iteratively.
impl Drop for TermPath {
    fn drop(&mut self) {
        let mut outer = self.outer.take();
        while let Some(mut path) = outer.and_then(Arc::into_inner) {
            outer = path.outer.take();
        }
    }
}

/// The frames from the root term to the failed term.
#[derive(Clone, Debug, Default)]
pub struct Backtrace {
    /// Innermost first: frames are added while the error unwinds.
    inner_first: Vec<Frame>,
    /// The path to the first of the frames, once the error left a function whose path is known.
    anchor: Option<Arc<TermPath>>,
    /// Whether the backtrace stays empty.
    is_frameless: bool,
}

impl Backtrace {
    /// A backtrace that stays empty.
    #[must_use]
    pub fn frameless() -> Backtrace {
        Backtrace { is_frameless: true, ..Backtrace::default() }
    }

    /// Adds the frame of an enclosing term. Does nothing once the whole path is known.
    pub fn push_outer(&mut self, frame: Frame) {
        if self.anchor.is_none() && !self.is_frameless {
            self.inner_first.push(frame);
        }
    }

    /// Completes the backtrace: its frames are relative to the end of `path`. Functions are often called far from
    /// the term that contains them, when a stream is read.
    pub fn anchor(&mut self, path: &Arc<TermPath>) {
        if self.anchor.is_none() && !self.is_frameless {
            self.anchor = Some(path.clone());
        }
    }

    /// The path set by [`Backtrace::anchor`].
    #[must_use]
    pub fn anchored(&self) -> Option<&Arc<TermPath>> {
        self.anchor.as_ref()
    }

    /// The frames relative to [`Backtrace::anchored`], innermost first.
    #[must_use]
    pub fn inner_first(&self) -> &[Frame] {
        &self.inner_first
    }

    /// All frames, outermost first.
    #[must_use]
    pub fn frames(&self) -> Vec<&Frame> {
        let anchor = self.anchor.iter().flat_map(|path| path.outwards());
        let mut frames: Vec<&Frame> = self.inner_first.iter().chain(anchor).collect();
        frames.reverse();
        frames
    }

    /// All frames as drivers receive them, outermost first: numbers and names.
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
