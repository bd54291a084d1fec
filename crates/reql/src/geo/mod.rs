//! Shapes on the earth: validation, intersection, distance, and the cells that cover them.
//!
//! Pure functions of datums and numbers. The terms over them are in `op::geo`; indexes of shapes take their keys
//! from [`cover`] and search for the nearest shapes with [`nearest`]. Points, lines and areas are compared on the
//! unit sphere with edges that are great circles, as RethinkDB did with S2; distances are along geodesics of an
//! [`Ellipsoid`]. Operations that can take long, especially where many edges overlap, check the query's cancel
//! flag.

mod boxes;
pub mod cover;
mod ellipsoid;
mod geodesic;
mod measure;
pub mod nearest;
mod orientation;
mod path;
mod polygon;
mod ring;
mod shape;
mod sphere;

pub use ellipsoid::Ellipsoid;
pub use geodesic::Geodesic;
pub use measure::{Unit, check_radius, circle, distance};
pub use path::Path;
pub use polygon::Polygon;
pub use shape::{LazyShape, Shape, kind, lon_lat_of, members, members_of_argument, positions};
pub use sphere::{LonLat, Point};

use crate::env::Cancel;
use crate::error::EvalError;
use crate::printf::g20;

/// Why a value is not a valid shape, or cannot be computed from shapes. The texts are RethinkDB's.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShapeError {
    /// A longitude out of range.
    #[error("Longitude must be between -180 and 180.  Got {}.", g20(*.0))]
    Longitude(f64),
    /// A latitude out of range.
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
    /// A position with an altitude.
    #[error("A third altitude coordinate in GeoJSON positions was found, but is not supported.")]
    Altitude,
    /// A line of fewer than two points.
    #[error("GeoJSON LineString must have at least two positions.")]
    ShortLine,
    /// A line with an invalid edge.
    #[error("Invalid LineString.  Are there antipodal or duplicate vertices?")]
    InvalidLine,
    /// A ring of fewer than three points.
    #[error("GeoJSON LinearRing must have at least four positions.")]
    ShortRing,
    /// A ring that is not closed.
    #[error("First and last vertex of GeoJSON LinearRing must be identical.")]
    OpenRing,
    /// A ring that crosses itself.
    #[error("Invalid LinearRing.  Are there antipodal or duplicate vertices? Is it self-intersecting?")]
    InvalidRing,
    /// Rings that cross.
    #[error("Some edges in GeoJSON polygon could not be used.  Are they intersecting?")]
    UnusedEdges,
    /// An area without the outer ring that is required.
    #[error("The polygon is empty. It must have at least an outer shell.")]
    EmptyPolygon,
    /// A reference system other than the default.
    #[error(
        "Non-default coordinate reference systems are not supported in GeoJSON objects.  Make sure the \
         `crs` field of the geometry is null or non-existent."
    )]
    ReferenceSystem,
    /// A kind of GeoJSON shape that is not supported.
    #[error("GeoJSON type `{0}` is not supported.")]
    UnsupportedKind(String),
    /// A kind of shape that GeoJSON does not have.
    #[error("Unrecognized GeoJSON type `{0}`.")]
    UnknownKind(String),
    /// A kind of shape that is not allowed here.
    #[error("Expected geometry of type `{expected}` but found `{found}`.")]
    OtherKind {
        /// The kind that is allowed.
        expected: &'static str,
        /// The kind of the shape.
        found: String,
    },
    /// An unknown unit of length.
    #[error("Unrecognized distance unit `{0}`.")]
    Unit(String),
    /// A circle whose radius is not positive.
    #[error("Radius must be positive")]
    RadiusNotPositive,
    /// A circle too large to compute its vertices.
    #[error(
        "Radius must be smaller than a quarter of the circumference along the minor axis of the reference \
         ellipsoid.  Got {}m, but must be smaller than {}m.", g20(*.radius), g20(*.max)
    )]
    RadiusTooLarge {
        /// The radius, in metres.
        radius: f64,
        /// The limit that the radius must be below, in metres.
        max: f64,
    },
    /// A search that would have to look more than halfway around the earth.
    #[error(
        "The distance has become too large for continuing the indexed nearest traversal.  Consider \
         specifying a smaller `max_dist` parameter.  ({0})"
    )]
    SearchTooFar(Box<ShapeError>),
    /// An area to cut out that is not inside the other.
    #[error("The second argument to `polygon_sub` is not contained in the first one.")]
    NotContained,
    /// The query was cancelled, or ran out of memory.
    #[error("cancelled: {0}")]
    Cancelled(EvalError),
}

impl ShapeError {
    /// Fails if the query that needs the shapes was cancelled.
    fn check_cancel(cancel: &Cancel) -> Result<(), ShapeError> {
        cancel.check().map_err(ShapeError::Cancelled)
    }
}

impl From<ShapeError> for EvalError {
    fn from(error: ShapeError) -> Self {
        match error {
            ShapeError::Cancelled(error) => error,
            error => EvalError::logic(error.to_string()),
        }
    }
}
