//! QuickJS and the functions it keeps; runs inside a sandbox, or in a test.

use std::collections::HashMap;

use datum::Datum;
use rquickjs::context::EvalOptions;
use rquickjs::function::Args;
use rquickjs::{Coerced, Context, Ctx, Error, FromJs, Function, Persistent, Runtime, Value};

use super::frame::SandboxResponse;
use super::values::{ConversionError, from_js, to_js};

/// Memory limit of scripts.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Stack limit of scripts. The program's own stack is larger.
const STACK_BYTES_MAX: usize = 1 << 20;

/// A JavaScript engine with its own global state.
pub(super) struct Engine {
    // The order of the fields is the order in which they must be dropped.
    functions: HashMap<u64, Persistent<Function<'static>>>,
    context: Context,
    _runtime: Runtime,
    next: u64,
}

impl Engine {
    /// A fresh engine. Fails when there is not enough memory.
    pub(super) fn new() -> Result<Engine, Error> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(MEMORY_BYTES_MAX);
        runtime.set_max_stack_size(STACK_BYTES_MAX);
        let context = Context::full(&runtime)?;
        Ok(Engine { functions: HashMap::new(), context, _runtime: runtime, next: 0 })
    }

    /// Evaluates a script.
    pub(super) fn eval(&mut self, source: &str, items_max: usize) -> SandboxResponse {
        let mut options = EvalOptions::default();
        options.strict = false;
        options.filename = Some("rethinkdb_query".to_owned());
        let (functions, next) = (&mut self.functions, &mut self.next);
        self.context.with(|ctx| {
            let value = match ctx.eval_with_options::<Value<'_>, _>(source, options) {
                Ok(value) => value,
                Err(error) => return raised(&ctx, &error),
            };
            let Some(function) = value.as_function() else { return answer(&ctx, &value, items_max) };
            let id = *next;
            *next += 1;
            functions.insert(id, Persistent::save(&ctx, function.clone()));
            SandboxResponse::Function(id)
        })
    }

    /// Calls a function that it keeps.
    pub(super) fn call(&mut self, function: u64, values: &[Datum], items_max: usize) -> SandboxResponse {
        let Some(function) = self.functions.get(&function).cloned() else {
            return SandboxResponse::Error("the function is not known".into());
        };
        self.context.with(|ctx| match called(&ctx, function, values) {
            Ok(value) if value.is_function() => {
                SandboxResponse::Error("Returning functions from within `r.js` is unsupported.".into())
            }
            Ok(value) => answer(&ctx, &value, items_max),
            Err(error) => conversion_failure(&ctx, error),
        })
    }

    /// Drops a function.
    pub(super) fn release(&mut self, function: u64) {
        self.functions.remove(&function);
    }
}

fn called<'js>(
    ctx: &Ctx<'js>,
    function: Persistent<Function<'static>>,
    values: &[Datum],
) -> Result<Value<'js>, ConversionError> {
    let function = function.restore(ctx)?;
    let mut args = Args::new(ctx.clone(), values.len());
    args.this(ctx.globals())?;
    for value in values {
        args.push_arg(to_js(ctx, value)?)?;
    }
    Ok(function.call_arg(args)?)
}

fn answer<'js>(ctx: &Ctx<'js>, value: &Value<'js>, items_max: usize) -> SandboxResponse {
    match from_js(ctx, value, items_max) {
        Ok(value) => SandboxResponse::Datum(value),
        Err(error) => conversion_failure(ctx, error),
    }
}

fn conversion_failure(ctx: &Ctx<'_>, bad: ConversionError) -> SandboxResponse {
    match bad {
        ConversionError::Unsupported(why) => SandboxResponse::Error(why.into()),
        ConversionError::Script(error) => raised(ctx, &error),
    }
}

/// The thrown value, as a string.
fn raised(ctx: &Ctx<'_>, error: &Error) -> SandboxResponse {
    if !matches!(error, Error::Exception) {
        return SandboxResponse::Error(error.to_string().into());
    }
    let thrown = ctx.catch();
    if thrown.is_null() {
        // QuickJS throws `null` when there is no memory for an error object.
        return SandboxResponse::Error("out of memory, or `null` was thrown".into());
    }
    match Coerced::<String>::from_js(ctx, thrown) {
        Ok(text) => SandboxResponse::Error(text.0.into()),
        Err(_) => {
            // Discards an exception that the conversion to a string has thrown.
            drop(ctx.catch());
            SandboxResponse::Error("the script threw something that has no string".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS_MAX: usize = 10;

    fn shown(answer: SandboxResponse) -> String {
        match answer {
            SandboxResponse::Datum(value) => value.to_json_string(),
            SandboxResponse::Function(id) => format!("function {id}"),
            SandboxResponse::Error(why) => format!("error {why}"),
            SandboxResponse::Done => "done".to_owned(),
        }
    }

    fn eval(source: &str) -> String {
        shown(Engine::new().expect("memory").eval(source, ITEMS_MAX))
    }

    fn call(source: &str, values: &[Datum]) -> String {
        let mut engine = Engine::new().expect("memory");
        match engine.eval(source, ITEMS_MAX) {
            SandboxResponse::Function(id) => shown(engine.call(id, values, ITEMS_MAX)),
            other => shown(other),
        }
    }

    #[test]
    fn scripts_have_the_value_of_their_last_statement() {
        for (source, expected) in [
            ("1 + 1; 2 + 2", "4"),
            ("x = 3; var y = 4; x * y", "12"),
            ("'a' + null", "\"anull\""),
            ("[1, [true, null], {a: 'b'}]", "[1,[true,null],{\"a\":\"b\"}]"),
            ("({b: 1, a: {}, [Symbol('s')]: 1})", "{\"a\":{},\"b\":1}"),
            ("new Date('2012-08-01').getTime()", "1343779200000"),
            ("(function() {})", "function 0"),
            ("Object.create({inherited: 1})", "{}"),
            ("new Array(3).fill(0)", "[0,0,0]"),
        ] {
            assert_eq!(eval(source), expected, "{source}");
        }
    }

    #[test]
    fn values_that_cannot_be_converted_are_named() {
        for (source, expected) in [
            ("undefined", "Cannot convert javascript `undefined` to ql::datum_t."),
            ("[undefined]", "Cannot convert javascript `undefined` to ql::datum_t."),
            ("({a: function() {}})", "Cannot convert function to ql::datum_t."),
            ("/a/", "Cannot convert RegExp to ql::datum_t."),
            ("0 / 0", "Number return value is not finite."),
            ("new Date(NaN)", "Invalid Date in JS environment"),
            ("10n", "Unhandled value type when converting to ql::datum_t."),
            ("a = {}; a.a = a", "Recursion limit exceeded in js_to_json (circular reference?)."),
            ("function() { return 1; }", "SyntaxError: function name expected"),
            ("nothing", "ReferenceError: nothing is not defined"),
            ("throw 'up'", "up"),
            ("throw null", "out of memory, or `null` was thrown"),
            ("throw {toString: function() { throw 1 }}", "the script threw something that has no string"),
            ("({get a() { throw new Error('got') }})", "Error: got"),
            ("({$reql_type$: 'NONSENSE'})", "Unknown $reql_type$ `PTYPE<NONSENSE>`."),
        ] {
            assert_eq!(eval(source), format!("error {expected}"), "{source}");
        }
        assert!(eval("new Array(11).fill(0)").starts_with("error Array over size limit `10`."));
    }

    #[test]
    fn arguments_arrive_as_they_are() {
        let same = "(function(x) { return x; })";
        let object = datum::json::parse(br#"{"__proto__":{"a":1},"b":[null,true,1.5,"\u00e9"]}"#);
        let object = object.expect("json");
        assert_eq!(call(same, std::slice::from_ref(&object)), object.to_json_string());
        let time = Datum::Time(datum::Time::new(1.5, 60));
        assert_eq!(call("(function(x) { return x.getTime(); })", std::slice::from_ref(&time)), "1500");
        assert_eq!(call(same, &[time]), Datum::Time(datum::Time::new(1.5, 0)).to_json_string());
        assert_eq!(call("(function(a, b) { return a + b; })", &[1.into(), 2.into(), 3.into()]), "3");
        assert_eq!(call("(function(a, b) { return typeof b; })", &[1.into()]), "\"undefined\"");
        let bytes = Datum::Binary(datum::Bytes::from_static(b"x"));
        assert_eq!(call(same, &[bytes]), "error `r.binary` data cannot be used in `r.js`.");
        assert_eq!(call(same, &[Datum::MaxVal]), "error `r.maxval` cannot be passed to `r.js`.");
        let higher = "(function() { return function() {}; })";
        assert_eq!(call(higher, &[]), "error Returning functions from within `r.js` is unsupported.");
    }

    #[test]
    fn memory_and_stack_have_an_end() {
        let endless = "(function f() { return f(); })()";
        assert!(eval(endless).contains("stack"), "{}", eval(endless));
        let greedy = "a = 'x'; while (true) { a += a; }";
        assert!(eval(greedy).starts_with("error "), "{}", eval(greedy));
        let hoarding = "a = []; while (true) { a.push(new Array(1000).fill(1)); }";
        assert!(eval(hoarding).contains("out of memory"), "{}", eval(hoarding));
    }

    #[test]
    fn there_is_nothing_to_reach_out_with() {
        for name in
            ["require", "process", "std", "os", "print", "console", "fetch", "scriptArgs", "setTimeout"]
        {
            assert_eq!(eval(&format!("typeof {name}")), "\"undefined\"", "{name}");
        }
        assert!(eval("import('os'); 1") == "1" || eval("import('os'); 1").starts_with("error"));
    }

    #[test]
    fn a_released_function_is_gone() {
        let mut engine = Engine::new().expect("memory");
        assert_eq!(shown(engine.eval("(function() { return 1; })", 1)), "function 0");
        engine.release(0);
        assert_eq!(shown(engine.call(0, &[], 1)), "error the function is not known");
        assert_eq!(shown(engine.eval("(function() { return 2; })", 1)), "function 1");
        assert_eq!(shown(engine.call(1, &[], 1)), "2");
    }
}
