//! What queries may use outside of this process, as far as it was built in and is allowed: the web
//! for `r.http`, sandboxes for `r.js`.

use std::sync::Arc;

use query::{Scripts, Web};

use crate::config::Config;

/// The web, within the bounds of `config`.
#[cfg(feature = "http")]
pub(crate) fn web(config: &Config) -> Option<Arc<dyn Web>> {
    Some(Arc::new(crate::outbound_http::HttpClient::new(config.http_reach)))
}

/// The web is not built in.
#[cfg(not(feature = "http"))]
pub(crate) fn web(_: &Config) -> Option<Arc<dyn Web>> {
    None
}

/// Sandboxes, if `config` allows them.
#[cfg(feature = "js")]
pub(crate) fn scripts(config: &Config) -> Option<Arc<dyn Scripts>> {
    config.enable_js.then(|| Arc::new(crate::js::JsPool::of_this_program()) as Arc<dyn Scripts>)
}

/// JavaScript is not built in.
#[cfg(not(feature = "js"))]
pub(crate) fn scripts(config: &Config) -> Option<Arc<dyn Scripts>> {
    if config.enable_js {
        tracing::warn!("enable-js: the option has no effect: JavaScript is not built into this program");
    }
    None
}
