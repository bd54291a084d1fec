//! Terms that make shapes from numbers, GeoJSON or other shapes.

use datum::{Array, Datum, Object, ObjectBuilder, Text, pseudo};

use super::measure::{ellipsoid_of, unit_of};
use crate::EvalError;
use crate::args::{Args, integer};
use crate::env::Env;
use crate::geo::{self, LonLat, Shape, ShapeError};

/// Default number of vertices of a circle.
const CIRCLE_VERTICES: usize = 32;

/// `point`: the point at a longitude and a latitude.
pub fn point(args: &Args<'_>) -> Result<Datum, EvalError> {
    let place = LonLat { lon: args.number(0)?, lat: args.number(1)? };
    shape("Point", pair(place), args.env)
}

/// `line`: the line through points.
pub fn line(args: &Args<'_>) -> Result<Datum, EvalError> {
    shape("LineString", path(&places(args)?, args.env)?, args.env)
}

/// `polygon`: the area inside a line through points, which is closed if necessary.
pub fn polygon(args: &Args<'_>) -> Result<Datum, EvalError> {
    filled(places(args)?, args.env)
}

/// `circle`: the area around a centre within a distance, or with `fill: false` its outline.
pub fn circle(args: &Args<'_>) -> Result<Datum, EvalError> {
    // A missing argument takes precedence over all other errors. Source: terms/geo.cc of RethinkDB.
    args.datum(1)?;
    let fill = args.flag("fill")?.unwrap_or(true);
    let vertices = vertices_of(args)?;
    let ellipsoid = ellipsoid_of(args)?;
    let unit = unit_of(args)?;
    let center = geo::lon_lat_of(args.datum(0)?)?;
    let radius_m = unit.to_m(args.number(1)?);
    geo::check_radius(radius_m, &ellipsoid)?;
    args.env.check_array(vertices.saturating_add(1))?;
    let ring = geo::circle(center, radius_m, vertices, &ellipsoid)?;
    if fill { filled(ring, args.env) } else { shape("LineString", path(&ring, args.env)?, args.env) }
}

fn vertices_of(args: &Args<'_>) -> Result<usize, EvalError> {
    const OPTION: &str = "num_vertices";
    let Some(number) = args.optional_number(OPTION)? else { return Ok(CIRCLE_VERTICES) };
    let at_option = |error| args.at_optarg(OPTION, error);
    let count = integer(number).map_err(at_option)?;
    let count = u32::try_from(count)
        .map_err(|_| at_option(EvalError::logic(format!("Integer too large: {count}"))))?;
    match count {
        0 => Err(at_option(EvalError::logic("num_vertices must be positive."))),
        count => Ok(count as usize),
    }
}

/// `fill`: the area inside a line.
pub fn fill(args: &Args<'_>) -> Result<Datum, EvalError> {
    let line = geo::members_of_argument(args.datum(0)?, 0)?;
    match geo::kind(&line)? {
        kind if kind == "LineString" => {}
        found => return Err(ShapeError::OtherKind { expected: "LineString", found }.into()),
    }
    let coordinates = line.get("coordinates").unwrap_or(Datum::Null);
    filled(geo::positions(&coordinates)?, args.env)
}

/// `polygon_sub`: an area with another cut out of it.
pub fn polygon_sub(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (outer, hole) = (simple_polygon(args, 0)?, simple_polygon(args, 1)?);
    let cancel = args.env.cancel;
    let area = Shape::polygon(args.datum(0)?, cancel)?;
    if !Shape::of(args.datum(1)?, cancel)?.is_in(&area, cancel)? {
        return Err(ShapeError::NotContained.into());
    }
    let [Some(outer), Some(hole)] = [outer.first(), hole.first()] else {
        return Err(EvalError::out_of_bounds(0));
    };
    shape("Polygon", Datum::from(vec![outer.clone(), hole.clone()]), args.env)
}

/// The rings of argument `i`, which must be an area without holes.
fn simple_polygon(args: &Args<'_>, i: usize) -> Result<Array, EvalError> {
    let object = geo::members_of_argument(args.datum(i)?, i)?;
    match geo::kind(&object)? {
        kind if kind == "Polygon" => {}
        kind => return Err(EvalError::logic(format!("Expected a Polygon but found a {kind}.")).at(i)),
    }
    match object.get("coordinates") {
        Some(Datum::Array(rings)) if rings.len() <= 1 => Ok(rings),
        _ => {
            let message = "Expected a Polygon with only an outer shell.  This one has holes.";
            Err(EvalError::logic(message).at(i))
        }
    }
}

/// `geojson`: the shape of a GeoJSON object. Drops its `bbox`.
pub fn geojson(args: &Args<'_>) -> Result<Datum, EvalError> {
    let object = match args.datum(0)? {
        Datum::Object(object) => object,
        Datum::Geometry(shape) => {
            Shape::validate(shape, args.env.cancel)?;
            return Err(EvalError::logic(format!("GeoJSON object already had a {} field.", pseudo::KEY)));
        }
        other => return Err(EvalError::type_error("OBJECT", other)),
    };
    Shape::validate(object, args.env.cancel)?;
    let mut members = object.to_builder();
    members.remove("bbox");
    members.insert(Text::from_static(pseudo::KEY), Datum::from("GEOMETRY"));
    pseudo::from_object(members.build()).map_err(EvalError::logic)
}

/// `to_geojson`: the GeoJSON object of a shape.
pub fn to_geojson(args: &Args<'_>) -> Result<Datum, EvalError> {
    let mut members = geo::members_of_argument(args.datum(0)?, 0)?.to_builder();
    members.remove(pseudo::KEY);
    Ok(Datum::Object(members.build()))
}

/// The positions given by all arguments.
fn places(args: &Args<'_>) -> Result<Vec<LonLat>, EvalError> {
    (0..args.len()).map(|i| geo::lon_lat_of(args.datum(i)?)).collect()
}

/// The area inside a ring of positions, which is closed if necessary.
fn filled(mut ring: Vec<LonLat>, env: &Env<'_>) -> Result<Datum, EvalError> {
    if ring.first() != ring.last() {
        ring.extend(ring.first().copied());
    }
    shape("Polygon", Datum::from(vec![path(&ring, env)?]), env)
}

fn path(places: &[LonLat], env: &Env<'_>) -> Result<Datum, EvalError> {
    env.check_array(places.len())?;
    Ok(Datum::Array(places.iter().copied().map(pair).collect()))
}

fn pair(place: LonLat) -> Datum {
    Datum::from(vec![Datum::Number(place.lon), Datum::Number(place.lat)])
}

/// A shape of this kind. Fails if it is not valid.
fn shape(kind: &'static str, coordinates: Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
    let mut members = ObjectBuilder::new();
    members.insert(Text::from_static("coordinates"), coordinates);
    members.insert(Text::from_static("type"), Datum::String(Text::from_static(kind)));
    let members: Object = members.build();
    Shape::validate(&members, env.cancel)?;
    Ok(Datum::Geometry(members))
}
