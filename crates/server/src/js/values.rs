//! Converts ReQL values to JavaScript values and back. Times become dates; a value without a counterpart is an error.

use datum::{Datum, ObjectBuilder, Text, Time, pseudo};
use rquickjs::function::Constructor;
use rquickjs::object::{Filter, Property};
use rquickjs::prelude::This;
use rquickjs::{Array, Ctx, Error, Function, Object, Value};

/// The deepest nesting of a value; also ends circular references.
const DEPTH_MAX: usize = 500;

/// Why a value cannot be converted.
pub(super) enum ConversionError {
    /// It has no counterpart, for this reason.
    Unsupported(String),
    /// The script's own code failed, or ran out of memory.
    Script(Error),
}

impl From<Error> for ConversionError {
    fn from(error: Error) -> ConversionError {
        match error {
            Error::Utf8(_) => ConversionError::unsupported("String return value is not valid Unicode."),
            other => ConversionError::Script(other),
        }
    }
}

impl ConversionError {
    fn unsupported(why: impl Into<String>) -> ConversionError {
        ConversionError::Unsupported(why.into())
    }
}

/// Converts `value` for a script.
pub(super) fn to_js<'js>(ctx: &Ctx<'js>, value: &Datum) -> Result<Value<'js>, ConversionError> {
    build(ctx, value, DEPTH_MAX)
}

fn build<'js>(ctx: &Ctx<'js>, value: &Datum, depth: usize) -> Result<Value<'js>, ConversionError> {
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
            None => return Err(ConversionError::unsupported("bad datum value in js extproc")),
        },
        Datum::Binary(_) => {
            return Err(ConversionError::unsupported("`r.binary` data cannot be used in `r.js`."));
        }
        Datum::MinVal => return Err(ConversionError::unsupported("`r.minval` cannot be passed to `r.js`.")),
        Datum::MaxVal => return Err(ConversionError::unsupported("`r.maxval` cannot be passed to `r.js`.")),
    })
}

fn object<'js>(ctx: &Ctx<'js>, fields: &datum::Object, depth: usize) -> Result<Value<'js>, ConversionError> {
    let object = Object::new(ctx.clone())?;
    for (name, value) in fields.iter() {
        // Defined, not assigned: a field may be called `__proto__`.
        let value = Property::from(build(ctx, &value, depth)?).configurable().enumerable().writable();
        object.prop(&*name, value)?;
    }
    Ok(object.into_value())
}

/// Converts the value of a script. An array may have at most `items_max` items.
pub(super) fn from_js<'js>(
    ctx: &Ctx<'js>,
    value: &Value<'js>,
    items_max: usize,
) -> Result<Datum, ConversionError> {
    let reader = Reader { date: prototype(ctx, "Date")?, regexp: prototype(ctx, "RegExp")?, items_max };
    reader.read(value, DEPTH_MAX)
}

/// The prototype of a global constructor, if it is one.
fn prototype<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Option<Value<'js>>, ConversionError> {
    let constructor: Value<'js> = ctx.globals().get(name)?;
    match constructor.as_object() {
        Some(constructor) => Ok(Some(constructor.get("prototype")?)),
        None => Ok(None),
    }
}

/// Converts values; recognizes dates and regular expressions by their prototypes.
struct Reader<'js> {
    date: Option<Value<'js>>,
    regexp: Option<Value<'js>>,
    items_max: usize,
}

impl<'js> Reader<'js> {
    fn read(&self, value: &Value<'js>, depth: usize) -> Result<Datum, ConversionError> {
        let Some(below) = depth.checked_sub(1) else { return Err(too_deep()) };
        if let Some(text) = value.as_string() {
            return Ok(text.to_string()?.into());
        }
        if let Some(number) = value.as_number() {
            return match number.is_finite() {
                true => Ok(Datum::Number(number)),
                false => Err(ConversionError::unsupported("Number return value is not finite.")),
            };
        }
        if let Some(flag) = value.as_bool() {
            return Ok(Datum::Bool(flag));
        }
        if value.is_null() {
            return Ok(Datum::Null);
        }
        if value.is_undefined() {
            return Err(ConversionError::unsupported(
                "Cannot convert javascript `undefined` to ql::datum_t.",
            ));
        }
        if value.is_function() {
            return Err(ConversionError::unsupported("Cannot convert function to ql::datum_t."));
        }
        if let Some(array) = value.as_array() {
            return self.items(array, below);
        }
        match value.as_object() {
            Some(object) => self.fields(object, below),
            None => Err(ConversionError::unsupported("Unhandled value type when converting to ql::datum_t.")),
        }
    }

    fn items(&self, array: &Array<'js>, depth: usize) -> Result<Datum, ConversionError> {
        let length = array.len();
        if length > self.items_max {
            return Err(ConversionError::unsupported(reql::EvalError::array_limit(self.items_max).message()));
        }
        let mut items = Vec::with_capacity(length);
        for i in 0..length {
            items.push(self.read(&array.get::<Value<'js>>(i)?, depth)?);
        }
        Ok(items.into())
    }

    fn fields(&self, object: &Object<'js>, depth: usize) -> Result<Datum, ConversionError> {
        let behind = object.get_prototype().map(Object::into_value);
        if behind.is_some() && behind == self.regexp {
            return Err(ConversionError::unsupported("Cannot convert RegExp to ql::datum_t."));
        }
        if behind.is_some() && behind == self.date {
            let value_of: Function<'js> = object.get("valueOf")?;
            let millis: f64 = value_of.call((This(object.clone()),))?;
            return match millis.is_finite() {
                true => Ok(Datum::Time(Time::new(millis / 1000.0, 0))),
                false => Err(ConversionError::unsupported("Invalid Date in JS environment")),
            };
        }
        let mut out = ObjectBuilder::new();
        for pair in object.own_props::<String, Value<'js>>(Filter::new().string().enum_only()) {
            let (name, value) = pair?;
            out.insert(Text::from(name), self.read(&value, depth)?);
        }
        pseudo::from_object(out.build()).map_err(ConversionError::unsupported)
    }
}

fn too_deep() -> ConversionError {
    ConversionError::unsupported("Recursion limit exceeded in js_to_json (circular reference?).")
}
