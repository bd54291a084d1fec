//! What queries may use outside this process, as far as it is compiled in and allowed: HTTP for `r.http`, sandboxes for
//! `r.js`.

use std::sync::Arc;

use query::{HttpClient, Scripts};

use crate::config::Config;

/// Outbound HTTP within the limits of `config`.
#[cfg(feature = "http")]
pub(crate) fn http_client(config: &Config) -> Option<Arc<dyn HttpClient>> {
    Some(Arc::new(crate::outbound_http::OutboundHttp::new(config.http_reach)))
}

/// Outbound HTTP is not compiled in.
#[cfg(not(feature = "http"))]
pub(crate) fn http_client(_: &Config) -> Option<Arc<dyn HttpClient>> {
    None
}

/// Sandboxes, if `config` enables them.
#[cfg(feature = "js")]
pub(crate) fn scripts(config: &Config) -> Option<Arc<dyn Scripts>> {
    config.enable_js.then(|| Arc::new(crate::js::JsPool::of_this_program()) as Arc<dyn Scripts>)
}

/// JavaScript is not compiled in.
#[cfg(not(feature = "js"))]
pub(crate) fn scripts(config: &Config) -> Option<Arc<dyn Scripts>> {
    if config.enable_js {
        tracing::warn!("enable-js: the option has no effect: JavaScript is not compiled into this program");
    }
    None
}
