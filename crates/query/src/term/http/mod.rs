//! `http`: sends HTTP requests.

mod options;

use datum::Datum;
use reql::EvalError;

use crate::http::{Exchange, Page, Pages};
use crate::stream::Pipe;
use crate::table::{Privilege, Resource, access};
use crate::value::{Args, Seq, Value};

/// `http`: the body of the response; with `page`, a stream of the items of all pages.
pub(crate) fn http(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    access::check(cx, Privilege::Connect, Resource::Cluster)?;
    let url = args.string(0)?.to_string();
    let options = options::of(&args)?;
    let page = page(&args)?;
    let Some(client) = &cx.service.http_client else {
        return Err(EvalError::logic("`r.http` is not available on this server: it was built without it."));
    };
    let mut exchange = Exchange::new(client.session(), url, options);
    match page {
        None => exchange.send(&cx.cancel).map(|answer| Value::Datum(answer.body)),
        Some((page, limit)) => Ok(Value::Seq(Seq::stream(Pipe::of_items(Pages::new(exchange, page, limit))))),
    }
}

/// The paging mode and the limit of pages.
fn page(args: &Args<'_>) -> Result<Option<(Page, Option<u64>)>, EvalError> {
    let Some(page) = args.optarg("page")? else { return Ok(None) };
    let Some(limit) = args.optional_datum("page_limit")? else {
        let why = "Cannot use `page` without specifying `page_limit` (a positive number performs that many \
                   requests, -1 is unlimited).";
        return Err(EvalError::logic(why).at("page"));
    };
    let page = match page {
        Value::Func(closure) => Page::Func(closure),
        Value::Datum(Datum::Null) => Page::Nothing,
        Value::Datum(Datum::String(name)) if name == "link-next" => Page::LinkNext,
        Value::Datum(Datum::String(name)) => {
            let why = format!("`page` method '{name}' not recognized, only 'link-next' is available.");
            return Err(EvalError::logic(why).at("page"));
        }
        other => {
            let found = other.into_datum(args.cx).map_err(|error| error.at("page"))?;
            return Err(EvalError::type_error("STRING", &found).at("page"));
        }
    };
    let limit = match limit {
        Datum::Number(limit) => reql::args::integer(limit).map_err(|error| error.at("page_limit"))?,
        other => return Err(EvalError::type_error("NUMBER", &other).at("page_limit")),
    };
    match limit {
        -1 => Ok(Some((page, None))),
        limit => u64::try_from(limit).map(|limit| Some((page, Some(limit)))).map_err(|_| {
            EvalError::logic("`page_limit` should be greater than or equal to -1.").at("page_limit")
        }),
    }
}
