//! Shapes on the earth: what is valid, what meets what, how far apart, which cells cover them.
//!
//! Pure functions of datums and numbers; the terms over them are in `op::geo`, and whoever keeps
//! an index of shapes takes its keys from [`cover`] and its search for the nearest from [`nearest`].
//! Points, lines and areas are compared on the unit sphere with edges that are great circles, as
//! RethinkDB did with S2; distances are along geodesics of an [`Ellipsoid`]. Whatever can take long, the
//! more so where many edges lie over one another, looks at the flag that stops its query.

mod boxes;
pub mod cover;
mod ellipsoid;
mod geodesic;
mod measure;
pub mod nearest;
mod path;
mod polygon;
mod ring;
mod shape;
mod sphere;
mod turn;

pub use ellipsoid::Ellipsoid;
pub use geodesic::Geodesic;
pub use measure::{Unit, check_radius, circle, distance};
pub use path::Path;
pub use polygon::Polygon;
pub use shape::{LazyShape, Shape, kind, lon_lat_of, members, positions};
pub use sphere::{LonLat, Point};

use crate::env::Cancel;
use crate::error::EvalError;
use crate::printf::g20;

/// Why something is not a shape, or cannot be made from shapes. The texts are RethinkDB's.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShapeError {
    /// A place too far east or west.
    #[error("Longitude must be between -180 and 180.  Got {}.", g20(*.0))]
    Longitude(f64),
    /// A place beyond a pole.
    #[error("Latitude must be between -90 and 90.  Got {}.", g20(*.0))]
    Latitude(f64),
    /// A position of fewer than two numbers.
    #[error("Too few coordinates.  Need at least longitude and latitude.")]
    TooFewCoordinates,
    /// A position of more than three numbers.
    #[error(
        "Too many coordinates.  GeoJSON position should have no more than three coordinates, but got {0}."
    )]
    TooManyCoordinates(usize),
    /// A position with a height.
    #[error("A third altitude coordinate in GeoJSON positions was found, but is not supported.")]
    Altitude,
    /// A line of fewer than two points.
    #[error("GeoJSON LineString must have at least two positions.")]
    ShortLine,
    /// A line with an edge that is none.
    #[error("Invalid LineString.  Are there antipodal or duplicate vertices?")]
    InvalidLine,
    /// A ring of fewer than three points.
    #[error("GeoJSON LinearRing must have at least four positions.")]
    ShortRing,
    /// A ring that does not end where it began.
    #[error("First and last vertex of GeoJSON LinearRing must be identical.")]
    OpenRing,
    /// A ring that crosses itself.
    #[error("Invalid LinearRing.  Are there antipodal or duplicate vertices? Is it self-intersecting?")]
    InvalidRing,
    /// Rings that cross.
    #[error("Some edges in GeoJSON polygon could not be used.  Are they intersecting?")]
    UnusedEdges,
    /// An area without an outer ring where one is needed.
    #[error("The polygon is empty. It must have at least an outer shell.")]
    EmptyPolygon,
    /// Another reference system than the one there is.
    #[error(
        "Non-default coordinate reference systems are not supported in GeoJSON objects.  Make sure the \
         `crs` field of the geometry is null or non-existent."
    )]
    ReferenceSystem,
    /// A kind of shape that GeoJSON has and we have not.
    #[error("GeoJSON type `{0}` is not supported.")]
    UnsupportedKind(String),
    /// A kind of shape that GeoJSON has not.
    #[error("Unrecognized GeoJSON type `{0}`.")]
    UnknownKind(String),
    /// Another kind of shape than is needed.
    #[error("Expected geometry of type `{expected}` but found `{found}`.")]
    OtherKind {
        /// What is needed.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A unit of length there is none.
    #[error("Unrecognized distance unit `{0}`.")]
    Unit(String),
    /// A circle of no size.
    #[error("Radius must be positive")]
    RadiusNotPositive,
    /// A circle too large for its vertices to be found.
    #[error(
        "Radius must be smaller than a quarter of the circumference along the minor axis of the reference \
         ellipsoid.  Got {}m, but must be smaller than {}m.", g20(*.radius), g20(*.max)
    )]
    RadiusTooLarge {
        /// The radius, in metres.
        radius: f64,
        /// What it must be smaller than, in metres.
        max: f64,
    },
    /// A search that would have to look farther than half around the earth.
    #[error(
        "The distance has become too large for continuing the indexed nearest traversal.  Consider \
         specifying a smaller `max_dist` parameter.  ({0})"
    )]
    SearchTooFar(Box<ShapeError>),
    /// An area cut out of one that has not all of it.
    #[error("The second argument to `polygon_sub` is not contained in the first one.")]
    NotContained,
    /// Nobody wants to know any more, or there is no memory left to find out.
    #[error("stopped: {0}")]
    Stopped(EvalError),
}

impl ShapeError {
    /// Fails if the query that shapes are looked at for was told to stop.
    fn unless_stopped(cancel: &Cancel) -> Result<(), ShapeError> {
        cancel.check().map_err(ShapeError::Stopped)
    }
}

impl From<ShapeError> for EvalError {
    fn from(error: ShapeError) -> Self {
        match error {
            ShapeError::Stopped(error) => error,
            error => EvalError::logic(error.to_string()),
        }
    }
}
