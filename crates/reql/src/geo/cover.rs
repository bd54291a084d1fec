//! Cells that cover shapes, and the cells that a search must look at.
//!
//! The sphere is divided into the cells of S2: six faces, each divided into four at every one of 30 levels. The
//! numbers of the cells inside a cell are a range around its own number. The cells of a shape contain every point
//! of it, so two shapes that intersect have cells of which one equals or contains the other. Source: RethinkDB's
//! limits are 8 cells for a shape in an index and 16 for one in a query.

use s2::cap::Cap;
use s2::cell::Cell;
use s2::cellid::CellID;
use s2::point::Point as S2Point;
use s2::r3::vector::Vector;
use s2::region::{Region, RegionCoverer};
use s2::s1::angle::{Angle, Rad};

use super::sphere::Point;
use super::{Polygon, Shape, ShapeError};
use crate::env::Cancel;

/// The number of a cell. The numbers of the cells inside it surround its own.
pub type CellNumber = u64;

/// Cells of an indexed shape; there can be a few more where many cells meet.
const INDEX_CELLS_MAX: usize = 8;
/// Cells of a shape in a query.
const SEARCH_CELLS_MAX: usize = 16;
/// The smallest cells, about a centimetre wide.
const LEVEL_MAX: u8 = 30;
/// Tolerance for rounding beside a cell's edge, as a sine.
const MARGIN: f64 = 1e-14;

/// The cells under which an index keeps a shape, ascending: one for a point, none for a shape without points. Fails
/// if `cancel` is set.
pub fn index_cells(shape: &Shape, cancel: &Cancel) -> Result<Vec<CellNumber>, ShapeError> {
    Ok(covering(shape, INDEX_CELLS_MAX, cancel)?.into_iter().map(|cell| cell.0).collect())
}

/// First and last cell number of a range, both included.
pub type CellRange = (CellNumber, CellNumber);

/// The ranges of index cells that can hold shapes intersecting this one: ascending, without overlaps. A shape may
/// be found under several cells. Fails if `cancel` is set.
pub fn search_ranges(shape: &Shape, cancel: &Cancel) -> Result<Vec<CellRange>, ShapeError> {
    Ok(ranges_of(covering(shape, SEARCH_CELLS_MAX, cancel)?))
}

/// The ranges of index cells that can hold shapes with a part between the two distances, in radians, from the
/// centre. Like [`search_ranges`].
pub(super) fn annulus_ranges(center: &Point, outer: f64, inner: f64) -> Vec<CellRange> {
    let disc = |radius: f64| match radius {
        radius if radius >= std::f64::consts::PI => Cap::full(),
        radius if radius > 0.0 => Cap::from_center_angle(&S2Point(*center), &Angle::from(Rad(radius))),
        _ => Cap::empty(),
    };
    let annulus = Annulus { outer: disc(outer), inner: disc(inner) };
    ranges_of(coverer(SEARCH_CELLS_MAX).covering(&annulus).0)
}

/// The points inside one disc and outside another.
struct Annulus {
    outer: Cap,
    inner: Cap,
}

impl Region for Annulus {
    fn cap_bound(&self) -> Cap {
        self.outer.clone()
    }

    fn contains_cell(&self, cell: &Cell) -> bool {
        self.outer.contains_cell(cell) && (self.inner.is_empty() || !self.inner.intersects_cell(cell))
    }

    fn intersects_cell(&self, cell: &Cell) -> bool {
        self.outer.intersects_cell(cell) && (self.inner.is_empty() || !self.inner.contains_cell(cell))
    }
}

fn coverer(cells_max: usize) -> RegionCoverer {
    RegionCoverer { min_level: 0, max_level: LEVEL_MAX, level_mod: 1, max_cells: cells_max }
}

fn ranges_of(cells: Vec<CellID>) -> Vec<CellRange> {
    let mut ranges = Vec::new();
    for cell in cells {
        ranges.push((cell.range_min().0, cell.range_max().0));
        // The cells that contain this one.
        for level in 0..cell.level() {
            let parent = cell.parent(level).0;
            ranges.push((parent, parent));
        }
    }
    ranges.sort_unstable();
    let mut merged: Vec<CellRange> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn covering(shape: &Shape, cells_max: usize, cancel: &Cancel) -> Result<Vec<CellID>, ShapeError> {
    let vertices: Vec<Point> = match shape {
        Shape::Point(point) => return Ok(vec![CellID::from(S2Point(*point))]),
        Shape::Line(line) => line.vertices().to_vec(),
        Shape::Polygon(area) => area.edges().map(|(a, _)| *a).collect(),
    };
    if vertices.is_empty() {
        return Ok(Vec::new());
    }
    let edges = match shape {
        Shape::Polygon(area) => area.edges().map(|(a, b)| (*a, *b)).collect(),
        _ => vertices.windows(2).map(|pair| (pair[0], pair[1])).collect(),
    };
    let area = if let Shape::Polygon(area) = shape { Some(area.clone()) } else { None };
    let region = Outline { bound: bounding_cap(&vertices, area.as_ref()), edges, area };
    // At most some hundred cells are compared with all edges.
    ShapeError::check_cancel(cancel)?;
    Ok(coverer(cells_max).covering(&region).0)
}

/// A disc that contains the shape. Edges between points of a disc no larger than a hemisphere lie in it, and so
/// does the smaller side of a ring; overlapping rings can have the rest of the sphere inside.
fn bounding_cap(vertices: &[Point], area: Option<&Polygon>) -> Cap {
    let sum = vertices.iter().fold(Vector::default(), |sum, vertex| sum + *vertex);
    let center = S2Point(sum.normalize());
    let radius = vertices.iter().map(|vertex| center.0.angle(vertex).rad()).fold(0.0, f64::max) + MARGIN;
    let is_inverted = area.is_some_and(|area| area.contains_point(&(center.0 * -1.0)));
    if is_inverted || sum.norm() < MARGIN || radius >= std::f64::consts::FRAC_PI_2 {
        return Cap::full();
    }
    Cap::from_center_angle(&center, &Angle::from(Rad(radius)))
}

/// The edges of a line or an area, tested against cells. Doubtful cases count as intersecting.
struct Outline {
    bound: Cap,
    edges: Vec<(Point, Point)>,
    area: Option<Polygon>,
}

impl Outline {
    fn has_edge_in(&self, cell: &Cell) -> bool {
        // Unit normals of the planes through the cell's sides, pointing inward.
        let sides = [0, 1, 2, 3].map(|side| cell.edge(side).0);
        self.edges.iter().any(|(a, b)| enters(&sides, a, b))
    }

    fn has_center_of(&self, cell: &Cell) -> bool {
        self.area.as_ref().is_some_and(|area| area.contains_point(&cell.center().0))
    }
}

/// Whether part of the edge `ab` is on the inner side of all planes. Clips the chord by one plane after the other;
/// every point of the chord lies below a point of the edge.
fn enters(sides: &[Vector; 4], a: &Point, b: &Point) -> bool {
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for side in sides {
        let (at_a, at_b) = (side.dot(a) + MARGIN, side.dot(b) + MARGIN);
        if at_a < 0.0 && at_b < 0.0 {
            return false;
        }
        if at_a < 0.0 {
            from = from.max(at_a / (at_a - at_b));
        } else if at_b < 0.0 {
            to = to.min(at_a / (at_a - at_b));
        }
    }
    from <= to + MARGIN
}

impl Region for Outline {
    fn cap_bound(&self) -> Cap {
        self.bound.clone()
    }

    fn contains_cell(&self, cell: &Cell) -> bool {
        !self.has_edge_in(cell) && self.has_center_of(cell)
    }

    fn intersects_cell(&self, cell: &Cell) -> bool {
        self.has_edge_in(cell) || self.has_center_of(cell)
    }
}
