//! The security headers of the console's answers: a page loads only the console's own files, and no other site may frame it.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::assets::Policy;

/// Sets the headers of an answer.
pub(super) fn protect(headers: &mut HeaderMap, policy: &Policy) {
    set(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(headers, header::REFERRER_POLICY, "no-referrer");
    set(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(headers, header::CACHE_CONTROL, if matches!(policy, Policy::File) { "no-cache" } else { "no-store" });
    let (content, frame) = match policy {
        Policy::Page { nonce } => (page(nonce), "DENY"),
        Policy::Sandbox { script_hash } => (sandbox(script_hash), "SAMEORIGIN"),
        Policy::File => ("default-src 'none'; frame-ancestors 'none'".to_owned(), "DENY"),
    };
    set(headers, header::CONTENT_SECURITY_POLICY, &content);
    set(headers, header::X_FRAME_OPTIONS, frame);
    if matches!(policy, Policy::Page { .. }) {
        set(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn page(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; \
         connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
}

/// The frame has an origin of its own. Its worker inherits this policy, so that a script reaches no network.
fn sandbox(script_hash: &str) -> String {
    format!(
        "sandbox allow-scripts; default-src 'none'; script-src 'sha256-{script_hash}' 'unsafe-eval'; \
         worker-src blob:; frame-ancestors 'self'"
    )
}
