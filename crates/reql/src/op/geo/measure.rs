//! `distance`, and the options of all terms that measure distances.

use datum::Datum;

use crate::EvalError;
use crate::args::{Args, finite, integer};
use crate::geo::{self, Ellipsoid, LonLat, Shape, Unit};

const SYSTEM: &str = "geo_system";
const MAX_DIST: &str = "max_dist";
const MAX_RESULTS: &str = "max_results";

/// `distance`: the distance between two shapes, one of which is a point.
pub fn distance(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (first, second) = (args.datum(0)?, args.datum(1)?);
    let ellipsoid = ellipsoid_of(args)?;
    let unit = unit_of(args)?;
    let members = geo::members_of_argument(first, 0)?;
    let (point, other) = if geo::kind(&members)? == "Point" { (first, second) } else { (second, first) };
    let (point_at, other_at) = if std::ptr::eq(point, first) { (0, 1) } else { (1, 0) };
    geo::members_of_argument(point, point_at)?;
    geo::members_of_argument(other, other_at)?;
    let point = Shape::point(point)?;
    finite(unit.of_m(geo::distance(&point, &Shape::of(other, args.env.cancel)?, &ellipsoid)?))
}

/// The ellipsoid that the option `geo_system` selects.
pub fn ellipsoid_of(args: &Args<'_>) -> Result<Ellipsoid, EvalError> {
    let at_system = |error| args.at_optarg(SYSTEM, error);
    match args.optarg(SYSTEM)? {
        None => Ok(Ellipsoid::WGS84),
        Some(Datum::Object(axes)) => {
            let number = |name: &str| match axes.get(name) {
                Some(Datum::Number(number)) => Ok(number),
                Some(other) => Err(EvalError::type_error("NUMBER", &other)),
                None => Err(EvalError::no_attribute(&name.into(), axes)),
            };
            let ellipsoid = Ellipsoid { equator_m: number("a")?, flattening: number("f")? };
            if ellipsoid.equator_m <= 0.0 {
                return Err(at_system(EvalError::logic("The equator radius `a` must be positive.")));
            }
            if !(0.0..1.0).contains(&ellipsoid.flattening) {
                let message = "The flattening `f` must be in the range [0, 1).";
                return Err(at_system(EvalError::logic(message)));
            }
            Ok(ellipsoid)
        }
        Some(Datum::String(name)) => match &**name {
            "WGS84" => Ok(Ellipsoid::WGS84),
            "unit_sphere" => Ok(Ellipsoid::UNIT_SPHERE),
            other => Err(at_system(EvalError::logic(format!(
                "Unrecognized geo system \"{other}\" (valid options: \"WGS84\", \"unit_sphere\")."
            )))),
        },
        Some(other) => Err(at_system(EvalError::type_error("STRING", other))),
    }
}

/// The unit of length that the option `unit` selects.
pub fn unit_of(args: &Args<'_>) -> Result<Unit, EvalError> {
    match args.optional_string("unit")? {
        None => Ok(Unit::Metre),
        Some(name) => Ok(Unit::named(name)?),
    }
}

/// The arguments of `get_nearest`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearestOptions {
    /// Where distances are measured from.
    pub center: LonLat,
    /// Maximum distance of a result, in metres.
    pub max_dist_m: f64,
    /// Maximum number of results.
    pub max_results: usize,
    /// The ellipsoid on which distances are measured.
    pub ellipsoid: Ellipsoid,
    /// The unit of the distances in the result.
    pub unit: Unit,
}

impl NearestOptions {
    /// Reads the options of a call whose second argument is the centre.
    pub fn of(args: &Args<'_>) -> Result<Self, EvalError> {
        let center = geo::lon_lat_of(args.datum(1)?)?;
        let ellipsoid = ellipsoid_of(args)?;
        let unit = unit_of(args)?;
        let max_dist_m = match args.optional_number(MAX_DIST)? {
            None => 100_000.0,
            // The conversion may overflow; the largest double is far enough.
            Some(distance) => unit.to_m(distance).min(f64::MAX),
        };
        if max_dist_m <= 0.0 {
            return Err(args.at_optarg(MAX_DIST, EvalError::logic("max_dist must be positive.")));
        }
        let max_results = match args.optional_number(MAX_RESULTS)? {
            None => 100,
            Some(number) => integer(number).map_err(|error| args.at_optarg(MAX_RESULTS, error))?,
        };
        match usize::try_from(max_results) {
            Ok(max_results) if max_results > 0 => {
                Ok(NearestOptions { center, max_dist_m, max_results, ellipsoid, unit })
            }
            _ => Err(args.at_optarg(MAX_RESULTS, EvalError::logic("max_results must be positive."))),
        }
    }
}
