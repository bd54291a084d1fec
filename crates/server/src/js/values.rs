//! Values of the language as values of JavaScript and back. Times are dates; what JavaScript has
//! no word for is an error.

use datum::{Datum, ObjectBuilder, Text, Time, pseudo};
use rquickjs::function::Constructor;
use rquickjs::object::{Filter, Property};
use rquickjs::{Array, Ctx, Error, Function, Object, Value};

/// How deep a value may be nested, so that a circle ends.
const DEPTH_MAX: usize = 500;

/// Why a value has no counterpart.
pub(super) enum Bad {
    /// For this reason.
    Said(String),
    /// The script's own code failed, or ran out of memory.
    Raised(Error),
}

impl From<Error> for Bad {
    fn from(error: Error) -> Bad {
        match error {
            Error::Utf8(_) => Bad::said("String return value is not valid Unicode."),
            other => Bad::Raised(other),
        }
    }
}

impl Bad {
    fn said(why: impl Into<String>) -> Bad {
        Bad::Said(why.into())
    }
}

/// `value` for a script.
pub(super) fn to_js<'js>(ctx: &Ctx<'js>, value: &Datum) -> Result<Value<'js>, Bad> {
    build(ctx, value, DEPTH_MAX)
}

fn build<'js>(ctx: &Ctx<'js>, value: &Datum, depth: usize) -> Result<Value<'js>, Bad> {
    let Some(below) = depth.checked_sub(1) else { return Err(too_deep()) };
    Ok(match value {
        Datum::Null => Value::new_null(ctx.clone()),
        Datum::Bool(flag) => Value::new_bool(ctx.clone(), *flag),
        Datum::Number(number) => Value::new_number(ctx.clone(), *number),
        Datum::String(text) => rquickjs::String::from_str(ctx.clone(), text)?.into_value(),
        Datum::Array(items) => {
            let array = Array::new(ctx.clone())?;
            for (i, item) in items.iter().enumerate() {
                array.set(i, build(ctx, item, below)?)?;
            }
            array.into_value()
        }
        Datum::Object(fields) => object(ctx, fields, below)?,
        Datum::Time(time) => {
            let date: Constructor<'js> = ctx.globals().get("Date")?;
            date.construct::<_, Value<'js>>((time.epoch_seconds * 1000.0,))?
        }
        Datum::Geometry(_) => match pseudo::to_object(value) {
            Some(fields) => object(ctx, &fields, below)?,
            None => return Err(Bad::said("bad datum value in js extproc")),
        },
        Datum::Binary(_) => return Err(Bad::said("`r.binary` data cannot be used in `r.js`.")),
        Datum::MinVal => return Err(Bad::said("`r.minval` cannot be passed to `r.js`.")),
        Datum::MaxVal => return Err(Bad::said("`r.maxval` cannot be passed to `r.js`.")),
    })
}

fn object<'js>(ctx: &Ctx<'js>, fields: &datum::Object, depth: usize) -> Result<Value<'js>, Bad> {
    let object = Object::new(ctx.clone())?;
    for (name, value) in fields.iter() {
        // Defined and not assigned: a field may be called `__proto__`.
        let value = Property::from(build(ctx, &value, depth)?).configurable().enumerable().writable();
        object.prop(&*name, value)?;
    }
    Ok(object.into_value())
}

/// What a script answered. An array may have `items_max` items.
pub(super) fn from_js<'js>(ctx: &Ctx<'js>, value: &Value<'js>, items_max: usize) -> Result<Datum, Bad> {
    read(ctx, value, items_max, DEPTH_MAX)
}

fn read<'js>(ctx: &Ctx<'js>, value: &Value<'js>, items_max: usize, depth: usize) -> Result<Datum, Bad> {
    let Some(below) = depth.checked_sub(1) else { return Err(too_deep()) };
    if let Some(text) = value.as_string() {
        return Ok(text.to_string()?.into());
    }
    if let Some(number) = value.as_number() {
        return match number.is_finite() {
            true => Ok(Datum::Number(number)),
            false => Err(Bad::said("Number return value is not finite.")),
        };
    }
    if let Some(flag) = value.as_bool() {
        return Ok(Datum::Bool(flag));
    }
    if value.is_null() {
        return Ok(Datum::Null);
    }
    if value.is_undefined() {
        return Err(Bad::said("Cannot convert javascript `undefined` to ql::datum_t."));
    }
    if value.is_function() {
        return Err(Bad::said("Cannot convert function to ql::datum_t."));
    }
    if let Some(array) = value.as_array() {
        return items(ctx, array, items_max, below);
    }
    match value.as_object() {
        Some(object) => fields(ctx, object, items_max, below),
        None => Err(Bad::said("Unhandled value type when converting to ql::datum_t.")),
    }
}

fn items<'js>(ctx: &Ctx<'js>, array: &Array<'js>, items_max: usize, depth: usize) -> Result<Datum, Bad> {
    let length = array.len();
    if length > items_max {
        return Err(Bad::said(reql::EvalError::array_limit(items_max).message()));
    }
    let mut items = Vec::with_capacity(length);
    for i in 0..length {
        items.push(read(ctx, &array.get::<Value<'js>>(i)?, items_max, depth)?);
    }
    Ok(items.into())
}

fn fields<'js>(ctx: &Ctx<'js>, object: &Object<'js>, items_max: usize, depth: usize) -> Result<Datum, Bad> {
    if is_a(ctx, object, "RegExp")? {
        return Err(Bad::said("Cannot convert RegExp to ql::datum_t."));
    }
    if is_a(ctx, object, "Date")? {
        let value_of: Function<'js> = object.get("valueOf")?;
        let millis: f64 = value_of.call((rquickjs::prelude::This(object.clone()),))?;
        return match millis.is_finite() {
            true => Ok(Datum::Time(Time::new(millis / 1000.0, 0))),
            false => Err(Bad::said("Invalid Date in JS environment")),
        };
    }
    let mut out = ObjectBuilder::new();
    for pair in object.own_props::<String, Value<'js>>(Filter::new().string().enum_only()) {
        let (name, value) = pair?;
        out.insert(Text::from(name), read(ctx, &value, items_max, depth)?);
    }
    pseudo::from_object(out.build()).map_err(Bad::said)
}

/// Whether the global constructor of that name made the object.
fn is_a<'js>(ctx: &Ctx<'js>, object: &Object<'js>, name: &str) -> Result<bool, Bad> {
    let constructor: Value<'js> = ctx.globals().get(name)?;
    Ok(constructor.is_constructor() && object.is_instance_of(constructor))
}

fn too_deep() -> Bad {
    Bad::said("Recursion limit exceeded in js_to_json (circular reference?).")
}
