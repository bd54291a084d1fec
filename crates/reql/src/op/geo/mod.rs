//! Terms over shapes: making them, converting them, measuring them, asking how they lie.
//!
//! What shapes are is in [`crate::geo`]; here are the arguments and the datums.

mod compare;
mod make;
mod measure;

pub use compare::{Relation, ShapeTest};
pub use measure::{NearestOptions, ellipsoid_of, unit_of};

use super::Leaf;
use crate::signature::Op;

/// The leaf that evaluates `op`, if it is a term over shapes.
pub(super) fn leaf(op: Op) -> Option<Leaf> {
    Some(match op {
        Op::Geojson => make::geojson,
        Op::ToGeojson => make::to_geojson,
        Op::Point => make::point,
        Op::Line => make::line,
        Op::Polygon => make::polygon,
        Op::Circle => make::circle,
        Op::Fill => make::fill,
        Op::PolygonSub => make::polygon_sub,
        Op::Distance => measure::distance,
        _ => return None,
    })
}
