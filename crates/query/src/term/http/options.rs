//! The optional arguments of `http`.
//!
//! Source: docs/reql-spec.md section 7.1 and the messages of RethinkDB 2.4.

use std::time::Duration;

use datum::{Datum, Object};
use reql::EvalError;

use crate::http::{Auth, HttpOptions, HttpRequest, Method, ResultFormat, check_params, encoded, url_params};
use crate::value::Args;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The longest timeout: 30 days.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const ATTEMPTS_DEFAULT: u64 = 5;
const REDIRECTS_DEFAULT: u32 = 1;
const BODY_BYTES_MAX: u64 = 64 << 20;

/// The options of the term.
pub(super) fn of(args: &Args<'_>) -> Result<HttpOptions, EvalError> {
    let auth = auth(args)?;
    let method = method(args)?;
    let (body, mut headers) = data(args, method)?;
    let format = format(args)?;
    let params = params(args)?;
    set_headers(&mut headers, args)?;
    let request = HttpRequest {
        method,
        url: String::new(),
        headers,
        body,
        auth,
        timeout: timeout(args)?,
        // A negative number is a very large one, as in RethinkDB.
        attempts: args.optional_integer("attempts")?.map_or(ATTEMPTS_DEFAULT, i64::cast_unsigned),
        redirects: redirects(args)?,
        verify: args.optional_datum("verify")?.is_none_or(|verify| verify.is_truthy()),
        body_bytes_max: BODY_BYTES_MAX,
    };
    Ok(HttpOptions { request, params, format })
}

fn redirects(args: &Args<'_>) -> Result<u32, EvalError> {
    match args.optional_integer("redirects")? {
        None => Ok(REDIRECTS_DEFAULT),
        Some(count) => u32::try_from(count)
            .map_err(|_| EvalError::logic(format!("Integer too large: {count}")).at("redirects")),
    }
}

fn timeout(args: &Args<'_>) -> Result<Duration, EvalError> {
    match args.optional_number("timeout")? {
        None => Ok(TIMEOUT_DEFAULT),
        Some(seconds) if seconds < 0.0 => {
            Err(EvalError::logic("`timeout` may not be negative.").at("timeout"))
        }
        Some(seconds) => {
            // In whole milliseconds, as the error message shows it.
            let wanted = Duration::try_from_secs_f64(seconds).unwrap_or(TIMEOUT_MAX).min(TIMEOUT_MAX);
            Ok(Duration::from_millis(u64::try_from(wanted.as_millis()).unwrap_or(u64::MAX)))
        }
    }
}

fn method(args: &Args<'_>) -> Result<Method, EvalError> {
    let Some(name) = args.optional_string("method")? else { return Ok(Method::Get) };
    Method::ALL.into_iter().find(|method| *method.name() == *name).ok_or_else(|| {
        EvalError::logic(format!(
            "`method` ({name}) is not recognized (GET, HEAD, POST, PUT, PATCH and DELETE are allowed)."
        ))
        .at("method")
    })
}

fn format(args: &Args<'_>) -> Result<ResultFormat, EvalError> {
    let Some(name) = args.optional_string("result_format")? else { return Ok(ResultFormat::Auto) };
    match name.as_ref() {
        "auto" => Ok(ResultFormat::Auto),
        "json" => Ok(ResultFormat::Json),
        "jsonp" => Ok(ResultFormat::Jsonp),
        "text" => Ok(ResultFormat::Text),
        "binary" => Ok(ResultFormat::Binary),
        other => Err(EvalError::logic(format!(
            "`result_format` ({other}) is not recognized, ('auto', 'json', 'jsonp', 'text', and 'binary' are \
             allowed)."
        ))
        .at("result_format")),
    }
}

fn auth(args: &Args<'_>) -> Result<Option<Auth>, EvalError> {
    let Some(auth) = args.optional_datum("auth")? else { return Ok(None) };
    read_auth(&auth).map(Some).map_err(|error| error.at("auth"))
}

fn read_auth(auth: &Datum) -> Result<Auth, EvalError> {
    let Datum::Object(fields) = auth else {
        let kind = auth.kind().name();
        return Err(EvalError::logic(format!("Expected `auth` to be an OBJECT, but found {kind}.")));
    };
    let text = |name: &str| match fields.get(name) {
        Some(Datum::String(text)) => Ok(Some(text.to_string())),
        // The type of the whole object, as in RethinkDB (`get_auth_item` in terms/http.cc).
        Some(_) => Err(EvalError::logic(format!("Expected `auth.{name}` to be a STRING, but found OBJECT."))),
        None => Ok(None),
    };
    let needed = |name: &str| {
        text(name)?.ok_or_else(|| EvalError::logic(format!("`auth.{name}` not found in the auth object.")))
    };
    let kind = text("type")?;
    let (user, pass) = (needed("user")?, needed("pass")?);
    match kind.as_deref() {
        None | Some("basic") => Ok(Auth::Basic { user, pass }),
        Some("digest") => Ok(Auth::Digest { user, pass }),
        Some(_) => {
            Err(EvalError::logic("`auth.type` is not recognized ('basic', and 'digest' are allowed)."))
        }
    }
}

/// Names and values, in the order in which they are sent.
type Headers = Vec<(String, String)>;

/// The body, and the header with its content type.
fn data(args: &Args<'_>, method: Method) -> Result<(Vec<u8>, Headers), EvalError> {
    let form = || vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
    let Some(data) = args.optional_datum("data")? else {
        let headers = if method == Method::Post { form() } else { Vec::new() };
        return Ok((Vec::new(), headers));
    };
    match (method, data) {
        (Method::Get | Method::Head, _) => Err(EvalError::logic(
            "`data` should only be specified on a PUT, POST, PATCH, or DELETE request.  If you want URL \
             parameters, use `params` instead.",
        )),
        (Method::Post, Datum::String(text)) => Ok((text.as_bytes().to_vec(), form())),
        (_, Datum::String(text)) => Ok((text.as_bytes().to_vec(), Vec::new())),
        (Method::Post, Datum::Object(fields)) => {
            check_params(&fields, "data").map_err(|error| error.at("data"))?;
            Ok((encoded(&fields).into_bytes(), form()))
        }
        (Method::Post, other) => {
            let kind = other.kind().name();
            let why = format!("Expected `data` to be a STRING or OBJECT, but found {kind}.");
            Err(EvalError::logic(why).at("data"))
        }
        (_, value) => {
            let text = reql::op::json::text_of(&value)?;
            let json = ("Content-Type".to_owned(), "application/json".to_owned());
            Ok((text.into_bytes(), vec![json]))
        }
    }
}

fn params(args: &Args<'_>) -> Result<Object, EvalError> {
    match args.optional_datum("params")? {
        None => Ok(Object::default()),
        Some(params) => url_params(params).map_err(|error| error.at("params")),
    }
}

/// The query's headers, which replace those with the same name.
fn set_headers(headers: &mut Vec<(String, String)>, args: &Args<'_>) -> Result<(), EvalError> {
    let Some(given) = args.optional_datum("header")? else { return Ok(()) };
    for (name, value) in read_headers(given).map_err(|error| error.at("header"))? {
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        headers.push((name, value));
    }
    Ok(())
}

fn read_headers(given: Datum) -> Result<Vec<(String, String)>, EvalError> {
    let mut lines = Vec::new();
    match given {
        Datum::Object(fields) => {
            for (name, value) in fields.iter() {
                match value {
                    Datum::String(value) => lines.push((name.to_string(), value.to_string())),
                    Datum::Null => lines.push((name.to_string(), String::new())),
                    other => {
                        let kind = other.kind().name();
                        return Err(EvalError::logic(format!(
                            "Expected `header.{name}` to be a STRING or NULL, but found {kind}."
                        )));
                    }
                }
            }
        }
        Datum::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let Datum::String(line) = item else {
                    let kind = item.kind().name();
                    return Err(EvalError::logic(format!(
                        "Expected `header[{i}]` to be a STRING, but found {kind}."
                    )));
                };
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                lines.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
        other => {
            let kind = other.kind().name();
            return Err(EvalError::logic(format!(
                "Expected `header` to be an ARRAY or OBJECT, but found {kind}."
            )));
        }
    }
    match lines.iter().any(|(name, value)| [name, value].iter().any(|text| text.contains(['\r', '\n']))) {
        true => Err(EvalError::logic("A `header` item contains newline characters.")),
        false => Ok(lines),
    }
}
