//! Reads shapes from datums.
//!
//! A geometry value contains GeoJSON: a `type`, `coordinates` in degrees east and north, and optionally a null
//! `crs`. A stored geometry may have been written as a literal object without validation, so every use validates it
//! completely. Source: docs/reql-spec.md section 17.

use std::sync::{Arc, OnceLock};

use datum::{Array, Datum, Object, pseudo};

use super::sphere::{LonLat, Point};
use super::{Path, Polygon, ShapeError};
use crate::env::Cancel;
use crate::error::EvalError;

/// A valid shape.
#[derive(Clone, Debug)]
pub enum Shape {
    Point(Point),
    Line(Path),
    /// An area.
    Polygon(Polygon),
}

impl Shape {
    /// The shape of a geometry. Fails if the value is not a geometry, or not a valid shape.
    pub fn of(value: &Datum, cancel: &Cancel) -> Result<Self, EvalError> {
        Shape::of_object(&members(value)?, cancel)
    }

    /// The shape of an object with the members of a geometry; other members are ignored.
    pub fn of_object(object: &Object, cancel: &Cancel) -> Result<Self, EvalError> {
        let kind = kind(object)?;
        let coordinates = object.get("coordinates");
        let coordinates =
            coordinates.ok_or_else(|| EvalError::no_attribute(&"coordinates".into(), object))?;
        match &*kind {
            "Point" => Ok(Shape::Point(checked(&coordinates)?)),
            "LineString" => line(&coordinates).map(Shape::Line),
            "Polygon" => polygon(&coordinates, cancel).map(Shape::Polygon),
            "MultiPoint" | "MultiLineString" | "MultiPolygon" | "GeometryCollection" | "Feature"
            | "FeatureCollection" => Err(ShapeError::UnsupportedKind(kind).into()),
            _ => Err(ShapeError::UnknownKind(kind).into()),
        }
    }

    /// The shape of an object that may not name a reference system.
    pub fn validate(object: &Object, cancel: &Cancel) -> Result<Self, EvalError> {
        match object.get("crs") {
            None | Some(Datum::Null) => Shape::of_object(object, cancel),
            Some(_) => Err(ShapeError::ReferenceSystem.into()),
        }
    }

    /// The polygon of a geometry; other shapes are an error.
    pub fn polygon(value: &Datum, cancel: &Cancel) -> Result<Polygon, EvalError> {
        let object = members(value)?;
        match kind(&object)? {
            kind if kind == "Polygon" => {}
            found => return Err(ShapeError::OtherKind { expected: "Polygon", found }.into()),
        }
        match Shape::of_object(&object, cancel)? {
            Shape::Polygon(polygon) => Ok(polygon),
            _ => Err(EvalError::internal("a polygon is one")),
        }
    }

    /// The point of a geometry; other shapes are an error.
    pub fn point(value: &Datum) -> Result<Point, EvalError> {
        let object = members(value)?;
        match kind(&object)? {
            kind if kind == "Point" => {}
            found => return Err(ShapeError::OtherKind { expected: "Point", found }.into()),
        }
        match Shape::of_object(&object, &Cancel::new())? {
            Shape::Point(point) => Ok(point),
            _ => Err(EvalError::internal("a point is one")),
        }
    }

    /// Whether the shape has no points: an area without rings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Shape::Polygon(area) if area.is_empty())
    }

    /// Whether the shapes intersect. Areas include their border, except towards other areas and lines that touch it
    /// only from outside.
    pub fn intersects(&self, other: &Shape, cancel: &Cancel) -> Result<bool, ShapeError> {
        match (self, other) {
            (Shape::Point(a), Shape::Point(b)) => Ok(a == b),
            (Shape::Point(point), Shape::Line(line)) | (Shape::Line(line), Shape::Point(point)) => {
                Ok(line.touches_point(point))
            }
            (Shape::Point(point), Shape::Polygon(area)) | (Shape::Polygon(area), Shape::Point(point)) => {
                Ok(area.touches_point(point))
            }
            (Shape::Line(a), Shape::Line(b)) => b.intersects(a, cancel),
            (Shape::Line(line), Shape::Polygon(area)) | (Shape::Polygon(area), Shape::Line(line)) => {
                area.intersects_path(line, cancel)
            }
            (Shape::Polygon(a), Shape::Polygon(b)) => b.intersects(a, cancel),
        }
    }

    /// Whether the shape lies in the area, border included.
    pub fn is_in(&self, area: &Polygon, cancel: &Cancel) -> Result<bool, ShapeError> {
        match self {
            Shape::Point(point) => Ok(area.touches_point(point)),
            Shape::Line(line) => area.contains_path(line, cancel),
            Shape::Polygon(other) => area.contains(other, cancel),
        }
    }
}

/// A geometry that many others are compared with: it is parsed once, on first use.
#[derive(Clone, Debug)]
pub struct LazyShape(Arc<(Datum, OnceLock<Shape>)>);

impl LazyShape {
    /// The shape of this value, not parsed yet.
    #[must_use]
    pub fn new(value: Datum) -> LazyShape {
        LazyShape(Arc::new((value, OnceLock::new())))
    }

    #[must_use]
    pub fn value(&self) -> &Datum {
        &self.0.0
    }

    /// The shape, parsed on first use. Fails as [`Shape::of`] does.
    pub fn get(&self, cancel: &Cancel) -> Result<&Shape, EvalError> {
        let (value, shape) = &*self.0;
        match shape.get() {
            Some(shape) => Ok(shape),
            None => {
                let found = Shape::of(value, cancel)?;
                Ok(shape.get_or_init(|| found))
            }
        }
    }
}

/// The members of a geometry. Fails for a binary. A time has members, but none of a geometry.
pub fn members(value: &Datum) -> Result<Object, EvalError> {
    match value {
        Datum::Geometry(shape) => Ok(shape.clone()),
        Datum::Time(_) => Ok(pseudo::to_object(value).unwrap_or_default()),
        Datum::Binary(_) => Err(EvalError::type_error("OBJECT", value)),
        other => Err(EvalError::logic(format!("Not a GEOMETRY pseudotype: `{}`.", other.truncated()))),
    }
}

/// The members of a geometry that is argument `i`. A value that is no pseudotype is an error of the argument; that a binary has no
/// members is found only where the term looks at them. Source: `as_ptype` in val.cc of RethinkDB 2.4.
pub fn members_of_argument(value: &Datum, i: usize) -> Result<Object, EvalError> {
    members(value).map_err(|error| if matches!(value, Datum::Binary(_)) { error } else { error.at(i) })
}

/// The `type` of a shape.
pub fn kind(object: &Object) -> Result<String, EvalError> {
    match object.get("type") {
        Some(Datum::String(kind)) => Ok(kind.to_string()),
        Some(other) => Err(EvalError::type_error("STRING", &other)),
        None => Err(EvalError::no_attribute(&"type".into(), object)),
    }
}

/// The position that an argument gives: a point, or a pair of numbers. Its range is not checked.
pub fn lon_lat_of(argument: &Datum) -> Result<LonLat, EvalError> {
    match argument {
        Datum::Geometry(shape) => match &*kind(shape)? {
            "Point" => place(&shape.get("coordinates").unwrap_or(Datum::Null)),
            found => Err(ShapeError::OtherKind { expected: "Point", found: found.to_owned() }.into()),
        },
        Datum::Array(pair) => match &**pair {
            [lon, lat] => Ok(LonLat { lon: number(lon)?, lat: number(lat)? }),
            _ => Err(EvalError::logic(format!(
                "Expected point coordinate pair.  Got {} element array instead of a 2 element one.",
                pair.len()
            ))),
        },
        other => Err(EvalError::type_error("ARRAY", other)),
    }
}

/// The positions of an array, not validated further.
pub fn positions(coordinates: &Datum) -> Result<Vec<LonLat>, EvalError> {
    array(coordinates)?.iter().map(place).collect()
}

/// The coordinates of a GeoJSON position. Their range is not checked.
fn place(position: &Datum) -> Result<LonLat, EvalError> {
    let position = array(position)?;
    match &**position {
        [lon, lat] => Ok(LonLat { lon: number(lon)?, lat: number(lat)? }),
        [_, _, _] => Err(ShapeError::Altitude.into()),
        [] | [_] => Err(ShapeError::TooFewCoordinates.into()),
        more => Err(ShapeError::TooManyCoordinates(more.len()).into()),
    }
}

fn checked(position: &Datum) -> Result<Point, EvalError> {
    let place = place(position)?;
    if !(-180.0..=180.0).contains(&place.lon) {
        return Err(ShapeError::Longitude(place.lon).into());
    }
    if !(-90.0..=90.0).contains(&place.lat) {
        return Err(ShapeError::Latitude(place.lat).into());
    }
    Ok(place.to_point())
}

fn line(coordinates: &Datum) -> Result<Path, EvalError> {
    let positions = array(coordinates)?;
    if positions.len() < 2 {
        return Err(ShapeError::ShortLine.into());
    }
    let points = positions.iter().map(checked).collect::<Result<Vec<_>, _>>()?;
    Ok(Path::new(points)?)
}

fn polygon(coordinates: &Datum, cancel: &Cancel) -> Result<Polygon, EvalError> {
    let rings = array(coordinates)?.iter().map(ring).collect::<Result<Vec<_>, _>>()?;
    Ok(Polygon::new(rings, cancel)?)
}

fn ring(coordinates: &Datum) -> Result<Vec<Point>, EvalError> {
    let positions = array(coordinates)?;
    if positions.len() < 4 {
        return Err(ShapeError::ShortRing.into());
    }
    let mut points = positions.iter().map(checked).collect::<Result<Vec<_>, _>>()?;
    if points.pop() != points.first().copied() {
        return Err(ShapeError::OpenRing.into());
    }
    Ok(points)
}

fn array(value: &Datum) -> Result<&Array, EvalError> {
    match value {
        Datum::Array(array) => Ok(array),
        other => Err(EvalError::type_error("ARRAY", other)),
    }
}

fn number(value: &Datum) -> Result<f64, EvalError> {
    match value {
        Datum::Number(number) => Ok(*number),
        other => Err(EvalError::type_error("NUMBER", other)),
    }
}
