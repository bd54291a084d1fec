//! Cells that cover shapes, and which cells a search has to look at.
//!
//! The sphere is divided into the cells of S2: six faces, each four times smaller at every one of 30
//! levels, numbered so that the cells inside a cell are a range of numbers around its own. A shape's
//! cells have every point of the shape in them, so that two shapes that meet have cells of which one
//! is the same as, or inside, the other. Source: RethinkDB's limits, 8 cells for a shape that is
//! kept and 16 for one that is looked for.

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

/// The number of a cell. Numbers of cells inside a cell surround its own.
pub type CellNumber = u64;

/// Cells for a shape that is kept; where many cells meet there can be a few more.
const KEPT_CELLS_MAX: usize = 8;
/// Cells for a shape that is looked for.
const SOUGHT_CELLS_MAX: usize = 16;
/// The smallest cells, about a centimetre wide.
const LEVEL_MAX: u8 = 30;
/// Room for rounding beside a cell's edge, as a sine.
const MARGIN: f64 = 1e-14;

/// The cells under which a shape is kept, ascending. A point has one; a shape without points none.
/// Fails if it was stopped.
pub fn kept_cells(shape: &Shape, cancel: &Cancel) -> Result<Vec<CellNumber>, ShapeError> {
    Ok(covering(shape, KEPT_CELLS_MAX, cancel)?.into_iter().map(|cell| cell.0).collect())
}

/// First and last cell number of a range, both included.
pub type CellRange = (CellNumber, CellNumber);

/// Everywhere among kept cells that shapes meeting this one can be: ascending, without overlaps. The
/// same shape can be found under several cells. Fails if it was stopped.
pub fn sought_ranges(shape: &Shape, cancel: &Cancel) -> Result<Vec<CellRange>, ShapeError> {
    Ok(ranges_of(covering(shape, SOUGHT_CELLS_MAX, cancel)?))
}

/// Everywhere among kept cells that shapes can be of which a part lies so far from the centre, in
/// radians: as [`sought_ranges`].
pub(super) fn annulus_ranges(center: &Point, outer: f64, inner: f64) -> Vec<CellRange> {
    let disc = |radius: f64| match radius {
        radius if radius >= std::f64::consts::PI => Cap::full(),
        radius if radius > 0.0 => Cap::from_center_angle(&S2Point(*center), &Angle::from(Rad(radius))),
        _ => Cap::empty(),
    };
    let annulus = Annulus { outer: disc(outer), inner: disc(inner) };
    ranges_of(coverer(SOUGHT_CELLS_MAX).covering(&annulus).0)
}

/// What lies in one disc and not in another.
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
        // Cells around this one.
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
    // At most some hundred cells are held against all edges.
    ShapeError::unless_stopped(cancel)?;
    Ok(coverer(cells_max).covering(&region).0)
}

/// A disc with all of the shape in it: edges between points of a disc no larger than half of the
/// sphere lie in it, and so does the smaller side of a ring; rings that overlap can have the rest of
/// the sphere inside.
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

/// The edges of a line or an area, tested against cells. Unsure is yes.
struct Outline {
    bound: Cap,
    edges: Vec<(Point, Point)>,
    area: Option<Polygon>,
}

impl Outline {
    fn has_edge_in(&self, cell: &Cell) -> bool {
        // Unit normals of the planes through the cell's sides, pointing into it.
        let sides = [0, 1, 2, 3].map(|side| cell.edge(side).0);
        self.edges.iter().any(|(a, b)| enters(&sides, a, b))
    }

    fn has_center_of(&self, cell: &Cell) -> bool {
        self.area.as_ref().is_some_and(|area| area.contains_point(&cell.center().0))
    }
}

/// Whether part of the edge `ab` is on the inner side of all planes: the chord, of which every point
/// lies below one of the edge, is cut by one plane after the other.
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
