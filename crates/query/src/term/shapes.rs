//! `get_intersecting` and `get_nearest`: rows by a geospatial index.

use cluster::IndexConfig;
use datum::{Datum, ObjectBuilder, Text};
use reql::geo::{self, LazyShape, nearest};
use reql::op::geo::NearestOptions;
use reql::stream::Items;
use reql::{Arg, EvalError};

use crate::context::Cx;
use crate::stream::{Pipe, RowSource, Source};
use crate::table::{IndexItems, IndexSearch, StoredTable, TableRef};
use crate::value::{Args, Seq, Value};

/// `get_intersecting`: the rows with a shape that intersects the given one, once for every such shape.
pub(crate) fn get_intersecting(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let name = index_name(&args, &table)?;
    let shape = args.datum(1)?;
    geo::members(&shape).map_err(|error| error.at(1))?;
    let (stored, index) = shape_index(&args, &table, &name)?;
    let shape = LazyShape::new(shape);
    shape.get(&args.cx.cancel)?;
    let rows = RowSource::of_index(&stored, &index, IndexSearch::Intersecting(shape), IndexItems::Rows);
    Ok(Value::Seq(Seq::selection(table, Pipe::of_source(Source::Rows(rows)))))
}

/// `get_nearest`: the rows with the shapes nearest to a place, with their distances, nearest first.
pub(crate) fn get_nearest(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let name = index_name(&args, &table)?;
    let options = options(&mut args)?;
    let (stored, index) = shape_index(&args, &table, &name)?;
    let bounds = nearest::Bounds {
        center: options.center,
        max_dist_m: options.max_dist_m,
        max_results: options.max_results,
        ellipsoid: options.ellipsoid,
    };
    let rows = RowSource::of_index(&stored, &index, IndexSearch::Nearest(bounds), IndexItems::Pairs);
    let found = nearest_of_all(args.cx, &mut *rows.open(args.cx)?, options.max_results)?;
    args.cx.env().check_array(found.len())?;
    let result = |found: nearest::NearbyShape<Datum>| {
        let mut members = ObjectBuilder::new();
        members.insert(Text::from_static("dist"), Datum::Number(options.unit.of_m(found.dist_m)));
        members.insert(Text::from_static("doc"), found.value);
        Datum::Object(members.build())
    };
    Ok(Value::Datum(Datum::Array(found.into_iter().map(result).collect())))
}

/// The nearest of the results of all shards.
fn nearest_of_all(
    cx: &Cx,
    items: &mut dyn Items,
    max_results: usize,
) -> Result<Vec<nearest::NearbyShape<Datum>>, EvalError> {
    let env = cx.env();
    let mut found: Vec<nearest::NearbyShape<Datum>> = Vec::new();
    let keep_nearest = |found: &mut Vec<nearest::NearbyShape<Datum>>| {
        found.sort_by(|a, b| a.dist_m.total_cmp(&b.dist_m));
        found.truncate(max_results);
    };
    while let Some(item) = items.next(&env)? {
        let Datum::Array(pair) = item else {
            return Err(EvalError::internal("expected a pair of distance and row"));
        };
        let [Datum::Number(dist_m), row] = &*pair else {
            return Err(EvalError::internal("expected a distance"));
        };
        found.push(nearest::NearbyShape { dist_m: *dist_m, value: row.clone() });
        if found.len() >= max_results.saturating_mul(2) {
            keep_nearest(&mut found);
        }
    }
    keep_nearest(&mut found);
    Ok(found)
}

/// The index the query names.
fn index_name(args: &Args<'_>, table: &TableRef) -> Result<Text, EvalError> {
    let term = args.op().name().to_lowercase();
    let name = args.optional_string("index")?;
    let name = name.ok_or_else(|| EvalError::logic(format!("{term} requires an index argument.")))?;
    match name == table.primary_key() {
        true => Err(EvalError::logic(format!("{term} cannot use the primary index."))),
        false => Ok(name),
    }
}

/// The index with this name, which must be geospatial.
fn shape_index(
    args: &Args<'_>,
    table: &TableRef,
    name: &Text,
) -> Result<(StoredTable, IndexConfig), EvalError> {
    let TableRef::Stored(stored) = table else { return Err(table.index_missing(name)) };
    match stored.find_index(args.cx, name) {
        None => Err(table.unreadable_index(name)),
        Some(index) if index.kind.is_geo() => Ok((stored.clone(), index)),
        Some(_) => {
            let term = args.op().name().to_lowercase();
            let why = format!(
                "Index `{name}` is not a geospatial index.  {term} can only be used with a geospatial index."
            );
            Err(EvalError::logic(why).frameless())
        }
    }
}

fn options(args: &mut Args<'_>) -> Result<NearestOptions, EvalError> {
    let center = args.datum(1)?;
    let mut optargs = Vec::with_capacity(args.call.optargs.len());
    for (name, _) in &args.call.optargs {
        optargs.extend(args.optional_datum(name)?.map(|value| (name.clone(), value)));
    }
    let values = [Arg::Datum(Datum::Null), Arg::Datum(center)];
    NearestOptions::of(&reql::Args::new(&values, &optargs, &args.cx.env()))
}
