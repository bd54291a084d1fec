//! `/ajax/reql`: queries over plain requests, as RethinkDB's pages and the official driver in browsers send them.
//!
//! Source of the forms and texts: docs/reql-spec.md section 1.7.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use protocol::request::QueryType;
use protocol::{Failure, Token, request, response};
use reql::ErrorClass;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ajax_connection::{AjaxConnection, Outcome};
use super::{Console, SharedConsole, log_in_first, starting};

/// Opens a connection; answers its id.
pub(super) async fn open(
    State(console): SharedConsole,
    Extension(address): Extension<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    let Some(backend) = console.backend() else { return starting() };
    let (Some(user), Some(stream)) = (console.user(&headers), console.connect(&headers, address)) else {
        return log_in_first();
    };
    let id: String = backend.random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
    match console.ajax.add(id.clone(), user, stream) {
        true => id.into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "Too many connections are open.\n").into_response(),
    }
}

/// Closes a connection.
pub(super) async fn close(State(console): SharedConsole, headers: HeaderMap, uri: Uri) -> Response {
    match find(&console, &headers, &uri) {
        Err(refusal) => refusal.into_response(),
        Ok((id, connection)) => {
            if connection.is_some() {
                console.ajax.close(&id);
            }
            StatusCode::OK.into_response()
        }
    }
}

/// Runs a query, or continues or stops one.
pub(super) async fn query(
    State(console): SharedConsole,
    headers: HeaderMap,
    uri: Uri,
    body: Bytes,
) -> Response {
    let (_, connection) = match find(&console, &headers, &uri) {
        Err(refusal) => return refusal.into_response(),
        Ok(found) => found,
    };
    let Some((token, query)) = body.split_first_chunk() else {
        return bad_request("Client is buggy (request too small).");
    };
    let token = Token(u64::from_le_bytes(*token));
    let Some(connection) = connection else {
        return failure(token, &Failure::client("This HTTP connection is not open."));
    };
    let outcome = match request::query_type(query) {
        Ok(QueryType::Start) => {
            if request::asks_for_noreply(query) {
                return bad_request("noreply queries are not supported over HTTP");
            }
            let query = with_profile(query).unwrap_or_else(|| query.to_vec());
            connection.send(token, &query, false).await
        }
        Ok(QueryType::Continue) => connection.send(token, query, true).await,
        _ => connection.send(token, query, false).await,
    };
    answer(token, outcome)
}

fn answer(token: Token, outcome: Outcome) -> Response {
    match outcome {
        Outcome::Frame(frame) => frame_response(frame),
        Outcome::Nothing => {
            let mut frame = Vec::new();
            // No element yet: an empty part, so that the request does not wait for ever.
            let body = b"{\"t\":3,\"r\":[],\"n\":[]}";
            match protocol::frame::write(&mut frame, token, body) {
                Some(()) => frame_response(frame.into()),
                None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
        Outcome::TimedOut => {
            let text = "HTTP ReQL query timed out after 300 seconds.";
            failure(token, &Failure::runtime(ErrorClass::OpIndeterminate, text))
        }
        Outcome::Closed => {
            let text = "This ReQL connection has been terminated.";
            failure(token, &Failure::runtime(ErrorClass::OpIndeterminate, text))
        }
    }
}

/// Why a request is about no connection.
enum Refusal {
    NoSession,
    NoId,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::NoSession => log_in_first(),
            Refusal::NoId => bad_request("Required parameter \"conn_id\" missing"),
        }
    }
}

type Found = (String, Option<Arc<AjaxConnection>>);

/// The connection that a request names, if it is one of its session's user.
fn find(console: &Console, headers: &HeaderMap, uri: &Uri) -> Result<Found, Refusal> {
    let user = console.user(headers).ok_or(Refusal::NoSession)?;
    let mut pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let id = pairs.find(|(name, _)| *name == "conn_id").map(|(_, id)| id.to_owned()).ok_or(Refusal::NoId)?;
    let connection = console.ajax.find(&id, &user);
    Ok((id, connection))
}

/// The query with the option `profile`. `None` if it is no query, which is then refused as it is.
fn with_profile(query: &[u8]) -> Option<Vec<u8>> {
    let parts: Vec<Box<RawValue>> = serde_json::from_slice(query).ok()?;
    let [kind, term, options @ ..] = parts.as_slice() else { return None };
    let mut options: serde_json::Map<String, Value> = match options {
        [] => serde_json::Map::new(),
        [options] => serde_json::from_str(options.get()).ok()?,
        _ => return None,
    };
    options.insert("profile".to_owned(), Value::Bool(true));
    let options = serde_json::to_string(&options).ok()?;
    Some(format!("[{},{},{options}]", kind.get(), term.get()).into_bytes())
}

fn failure(token: Token, failure: &Failure) -> Response {
    let mut frame = Vec::new();
    response::write_failure(&mut frame, token, failure);
    frame_response(frame.into())
}

fn frame_response(frame: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], frame).into_response()
}

fn bad_request(text: &'static str) -> Response {
    (StatusCode::BAD_REQUEST, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_gets_the_option_profile() {
        let changed =
            |query: &str| with_profile(query.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(changed("[1,[15,[\"t\"]]]").unwrap(), "[1,[15,[\"t\"]],{\"profile\":true}]");
        assert_eq!(
            changed("[1,9007199254740993,{\"db\":[14,[\"a\"]]}]").unwrap(),
            "[1,9007199254740993,{\"db\":[14,[\"a\"]],\"profile\":true}]"
        );
        assert_eq!(changed("[1]"), None);
        assert_eq!(changed("nonsense"), None);
    }
}
