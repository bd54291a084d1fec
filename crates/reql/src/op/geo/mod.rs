//! Terms over shapes: making, converting, measuring and comparing them.
//!
//! Shapes themselves are in [`crate::geo`]; this module handles arguments and datums.

mod compare;
mod make;
mod measure;

pub use compare::{Relation, ShapeTest};
pub use measure::{NearestOptions, ellipsoid_of, unit_of};

use super::Leaf;
use crate::signature::Op;

/// The leaf function of `op`, if it is a term over shapes.
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
