//! Shapes on the earth. Relations are defined by arcs on a sphere, with a verdict only if no corner is on an edge. Lengths
//! are by Vincenty's formulas, which are independent of the method of the node.

use std::collections::BTreeMap;

use super::outline::{check_ring, contains, far, meet, place, places, shape};
use super::vincenty::{LonLat, away};
use super::{datum, number, sequence, tables};
use crate::evaluator::args::{self, Args};
use crate::evaluator::term_value::{Seq, TermValue};
use crate::fault::{Fault, Out};
use crate::value::Val;

/// The larger half axis of the earth in metres, and its flattening (WGS84).
const EARTH: (f64, f64) = (6_378_137.0, 1.0 / 298.257_223_563);

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        157 => geojson(args),
        158 => {
            if let Val::Time(..) = args.datum(0)? {
                return Err(Fault::unspecified("the fields of a time"));
            }
            let (kind, coordinates) = shape(&args.datum(0)?)?;
            let members = [("type".to_owned(), Val::Text(kind)), ("coordinates".to_owned(), coordinates)];
            datum(Val::Object(members.into()))
        }
        159 => {
            let place = (args.number(0)?, args.number(1)?);
            checked_place(place)?;
            datum(made("Point", pair(place)))
        }
        160 | 161 => {
            let places: Out<Vec<LonLat>> = (0..args.len()).map(|i| place_of(&args.datum(i)?)).collect();
            if args.id == 160 { line(args, places?) } else { polygon(args, places?) }
        }
        162 => distance(args),
        163 | 164 => relation(args),
        165 => circle(args),
        166 => intersecting(args),
        167 => match shape(&args.datum(0)?)? {
            (kind, coordinates) if kind == "LineString" => polygon(args, places(&coordinates)?),
            _ => Err(Fault::logic("no line")),
        },
        168 => nearest(args),
        _ => without(args),
    }
}

fn made(kind: &str, coordinates: Val) -> Val {
    Val::Shape(kind.to_owned(), Box::new(coordinates))
}

fn pair((longitude, latitude): LonLat) -> Val {
    Val::Array(vec![Val::Number(longitude), Val::Number(latitude)])
}

fn checked_place((longitude, latitude): LonLat) -> Out<()> {
    let inside = (-180.0..=180.0).contains(&longitude) && (-90.0..=90.0).contains(&latitude);
    if inside { Ok(()) } else { Err(Fault::logic("out of range")) }
}

/// A point, or a pair of coordinates.
fn place_of(value: &Val) -> Out<LonLat> {
    match value {
        Val::Shape(kind, coordinates) if kind == "Point" => place(coordinates),
        Val::Shape(..) => Err(Fault::logic("no point")),
        Val::Array(items) if items.len() == 2 => Ok((args::number(&items[0])?, args::number(&items[1])?)),
        Val::Array(_) => Err(Fault::logic("not a pair")),
        other => Err(Fault::expected("ARRAY", other)),
    }
}

/// Fails for too many places, before their positions are checked, and for invalid places.
fn check_places(args: &Args<'_>, places: &[LonLat]) -> Out<()> {
    let known = places.iter().try_for_each(|place| checked_place(*place));
    Fault::both(known, args.evaluator.fits(places.len())).map(|_| ())
}

fn line(args: &Args<'_>, places: Vec<LonLat>) -> Out<TermValue> {
    check_places(args, &places)?;
    if places.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Fault::logic("equal neighbours"));
    }
    datum(made("LineString", Val::Array(places.into_iter().map(pair).collect())))
}

/// The polygon around these places, with the last moved to the first.
fn polygon(args: &Args<'_>, mut places: Vec<LonLat>) -> Out<TermValue> {
    if places.first() != places.last() {
        places.extend(places.first().copied());
    }
    check_places(args, &places)?;
    check_ring(&places)?;
    let ring = Val::Array(places.into_iter().map(pair).collect());
    datum(made("Polygon", Val::Array(vec![ring])))
}

/// `intersects` and `includes`: of a shape, or the items of a sequence that do.
fn relation(args: &Args<'_>) -> Out<TermValue> {
    let holds = |first: &Val| -> Out<bool> {
        match first {
            Val::Shape(..) => {}
            other if matches!(other, Val::Object(_)) || other.is_pseudo() => {
                return Err(Fault::logic("not a GEOMETRY pseudotype"));
            }
            Val::Array(_) => return Err(Fault::logic("a sequence of sequences")),
            other => return Err(Fault::expected("GEOMETRY", other)),
        }
        let other = args.datum(1)?;
        if args.id == 163 {
            return meet(first, &other);
        }
        if shape(first)?.0 != "Polygon" {
            return Err(Fault::logic("no polygon"));
        }
        contains(first, &other)
    };
    match args.value(0)? {
        first @ (TermValue::Table(_) | TermValue::Seq(_) | TermValue::Datum(Val::Array(_))) => {
            let seq = sequence::of_value(args.evaluator, first)?;
            let items = sequence::spread(seq.items, |item| {
                Ok(match holds(&item) {
                    Err(fault) if fault.is_missing() => Vec::new(),
                    holds => {
                        if holds? {
                            vec![item]
                        } else {
                            Vec::new()
                        }
                    }
                })
            });
            let eager = seq.eager;
            sequence::settled(args.evaluator, Seq { items, ..seq }, eager)
        }
        first => datum(Val::Bool(holds(&crate::evaluator::into_datum(first)?)?)),
    }
}

/// The metres in a unit.
fn unit(args: &Args<'_>) -> Out<f64> {
    match args.option("unit")? {
        None => Ok(1.0),
        Some(name) => match args::text(name)?.as_str() {
            "m" => Ok(1.0),
            "km" => Ok(1000.0),
            "mi" => Ok(1609.344),
            "nm" => Ok(1852.0),
            "ft" => Ok(0.3048),
            _ => Err(Fault::logic("no such unit")),
        },
    }
}

/// The larger half axis and the flattening.
fn ellipsoid(args: &Args<'_>) -> Out<(f64, f64)> {
    match args.option("geo_system")? {
        None => Ok(EARTH),
        Some(Val::Text(name)) if name == "WGS84" => Ok(EARTH),
        Some(Val::Text(name)) if name == "unit_sphere" => Ok((1.0, 0.0)),
        Some(Val::Text(_)) => Err(Fault::logic("no such system")),
        Some(Val::Object(axes)) => {
            let axis =
                |name: &str| args::number(axes.get(name).ok_or_else(|| Fault::missing("no such field"))?);
            let (axis, flattening) = Fault::both(axis("a"), axis("f"))?;
            if axis <= 0.0 || !(0.0..1.0).contains(&flattening) {
                return Err(Fault::logic("an impossible ellipsoid"));
            }
            // The series converge for ellipsoids like the earth.
            if flattening > 0.01 {
                Err(Fault::unspecified("a flat ellipsoid"))
            } else {
                Ok((axis, flattening))
            }
        }
        Some(other) => Err(Fault::expected("STRING", &other)),
    }
}

fn distance(args: &Args<'_>) -> Out<TermValue> {
    let (first, second) = (args.datum(0)?, args.datum(1)?);
    let (earth, unit) = (ellipsoid(args)?, unit(args)?);
    let (a, b) = (shape(&first)?, shape(&second)?);
    let (point, other) = if a.0 == "Point" { (a.1, second) } else { (b.1, first) };
    if a.0 != "Point" && b.0 != "Point" {
        return Err(Fault::logic("no point"));
    }
    number(far(place(&point)?, &other, earth)? / unit)
}

fn circle(args: &Args<'_>) -> Out<TermValue> {
    let (center, radius) = (args.datum(0)?, args.datum(1)?);
    let fills = args.option("fill")?.is_none_or(|value| value.truth());
    let count = args.option("num_vertices")?.map(|value| args::whole(args::number(&value)?)).transpose()?;
    let count = count.unwrap_or(32);
    if count <= 0 {
        return Err(Fault::logic("no corners"));
    }
    let (earth, unit) = (ellipsoid(args)?, unit(args)?);
    let center = place_of(&center)?;
    if checked_place(center).is_err() {
        return Err(Fault::unspecified("a circle around no place"));
    }
    let radius = args::number(&radius)? * unit;
    let quarter = std::f64::consts::FRAC_PI_2 * earth.0 * (1.0 - earth.1);
    if radius <= 0.0 || radius >= quarter {
        return Err(Fault::logic("an impossible radius"));
    }
    if count < 4 || radius / earth.0 > 0.2 || radius / earth.0 < 1e-6 {
        return Err(Fault::unspecified("a strange circle"));
    }
    let mut corners: Vec<LonLat> =
        (0..count).map(|i| away(center, radius, -180.0 + 360.0 / count as f64 * i as f64, earth)).collect();
    corners.push(corners[0]);
    let ring = args.evaluator.array(corners.into_iter().map(pair).collect())?;
    datum(if fills { made("Polygon", Val::Array(vec![ring])) } else { made("LineString", ring) })
}

/// The rows of a table that an index holds shapes of.
fn indexed(args: &Args<'_>) -> Out<(String, Vec<(Val, Val)>)> {
    let table = tables::whole(args, 0)?;
    let name = args.option("index")?.ok_or_else(|| Fault::logic("no index"))?;
    let name = args::text(name)?;
    let database = args.evaluator.database.borrow().clone();
    let rows = super::index::shapes(args.evaluator, &database.tables[&table], &name)?;
    Ok((table, rows))
}

fn intersecting(args: &Args<'_>) -> Out<TermValue> {
    let wanted = args.datum(1)?;
    let (_, (table, rows)) = Fault::both(shape(&wanted), indexed(args))?;
    unsaid_over(args, rows.len())?;
    let mut found = Vec::new();
    for (shape, row) in rows {
        if meet(&wanted, &shape)? {
            found.push(row);
        }
    }
    let items = args.evaluator.shuffled(found).into_iter().map(Ok).collect();
    Ok(TermValue::Seq(Seq { table: Some(table), ..Seq::stream(items) }))
}

fn nearest(args: &Args<'_>) -> Out<TermValue> {
    let center = args.datum(1)?;
    let ((_, rows), center) = Fault::both(indexed(args), place_of(&center))?;
    checked_place(center)?;
    let (earth, unit) = (ellipsoid(args)?, unit(args)?);
    let most =
        |name: &str, otherwise: f64| args.option(name)?.map_or(Ok(otherwise), |value| args::number(&value));
    let (reach, count) = (most("max_dist", 100_000.0 / unit)? * unit, most("max_results", 100.0)?);
    if reach <= 0.0 || count <= 0.0 {
        return Err(Fault::logic("nothing is wanted"));
    }
    if earth.0 == 1.0 || reach > 1_500_000.0 {
        return Err(Fault::unspecified("a far search"));
    }
    unsaid_over(args, rows.len())?;
    let mut found: Vec<(f64, Val)> = Vec::new();
    for (shape, row) in rows {
        let metres = far(center, &shape, earth)?;
        if (metres - reach).abs() < 1000.0 {
            return Err(Fault::unspecified("at the end of the reach"));
        }
        if metres < reach {
            found.push((metres, row));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    if found.windows(2).any(|pair| pair[1].0 - pair[0].0 < 1.0) {
        return Err(Fault::unspecified("rows at the same distance"));
    }
    found.truncate(count as usize);
    let one = |(metres, row)| {
        let members = [("dist".to_owned(), Val::Number(metres / unit)), ("doc".to_owned(), row)];
        Val::Object(BTreeMap::from(members))
    };
    args.evaluator.array(found.into_iter().map(one).collect()).and_then(datum)
}

/// `polygon_sub`.
fn without(args: &Args<'_>) -> Out<TermValue> {
    let simple = |i: usize| -> Out<Val> {
        let value = args.datum(i)?;
        match shape(&value)? {
            (kind, Val::Array(rings)) if kind == "Polygon" && rings.len() <= 1 => Ok(value),
            _ => Err(Fault::logic("no simple polygon")),
        }
    };
    let (outer, hole) = (simple(0)?, simple(1)?);
    if !contains(&outer, &hole)? {
        return Err(Fault::logic("not contained"));
    }
    match (shape(&outer)?.1, shape(&hole)?.1) {
        (Val::Array(mut rings), Val::Array(holes)) => {
            rings.extend(holes);
            datum(made("Polygon", args.evaluator.array(rings)?))
        }
        _ => Err(Fault::unspecified("strange rings")),
    }
}

/// `geojson`: an object as a shape.
fn geojson(args: &Args<'_>) -> Out<TermValue> {
    let members = match args.datum(0)? {
        Val::Object(members) => members,
        Val::Shape(..) => return Err(Fault::unspecified("geojson of a shape")),
        other => return Err(Fault::expected("OBJECT", &other)),
    };
    let field = |name: &str| members.get(name).ok_or_else(|| Fault::missing("no such field"));
    let kind = args::text(field("type")?.clone())?;
    let coordinates = field("coordinates")?;
    if members.keys().any(|name| !matches!(name.as_str(), "type" | "coordinates" | "bbox")) {
        return Err(Fault::unspecified("other members"));
    }
    let Val::Array(_) = coordinates else { return Err(Fault::unspecified("strange coordinates")) };
    match kind.as_str() {
        "Point" => {
            let place = place(coordinates)?;
            checked_place(place)?;
            datum(made("Point", pair(place)))
        }
        "LineString" => {
            let places = places(coordinates)?;
            unsaid_over(args, places.len())?;
            line(args, places)
        }
        "Polygon" => {
            let Val::Array(rings) = coordinates else { return Err(Fault::unspecified("strange rings")) };
            let [ring] = rings.as_slice() else { return Err(Fault::unspecified("rings in rings")) };
            let places = places(ring)?;
            if places.len() < 4 || places.first() != places.last() {
                return Err(Fault::logic("an open ring"));
            }
            unsaid_over(args, places.len())?;
            polygon(args, places)
        }
        _ => Err(Fault::logic("no such type")),
    }
}

/// No rule determines `geojson` of arrays above the limit, or the number of rows that an index of shapes returns.
fn unsaid_over(args: &Args<'_>, count: usize) -> Out<()> {
    if args.evaluator.exceeds(count) {
        Err(Fault::unspecified("more shapes or places than an array may hold"))
    } else {
        Ok(())
    }
}
