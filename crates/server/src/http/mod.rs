//! The HTTP port: the health page, the metrics page, and (later) the admin UI.

mod feeds;
mod health;
mod links;
mod metrics;
mod openmetrics;
mod process;

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_rustls::TlsAcceptor;

use crate::tls::Encrypted;

pub use health::{Health, NodeStage};
pub use metrics::{Observed, Sources};
pub(crate) use process::swap_warning;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The data behind the pages.
pub struct Pages {
    pub health: Arc<Health>,
    /// The metrics page.
    pub sources: Arc<Sources>,
}

/// Serves the pages on every socket until the future is dropped; over TLS if `tls` is set.
pub async fn serve(sockets: Vec<TcpListener>, tls: Option<TlsAcceptor>, pages: Arc<Pages>) {
    let router = router(pages);
    let mut servers = tokio::task::JoinSet::new();
    for socket in sockets {
        let (router, tls) = (router.clone(), tls.clone());
        servers.spawn(async move {
            let socket = tokio::net::TcpListener::from_std(socket)?;
            match tls {
                Some(acceptor) => axum::serve(Encrypted::start(socket, acceptor)?, router).await,
                None => axum::serve(socket, router).await,
            }
        });
    }
    while let Some(ended) = servers.join_next().await {
        if let Ok(Err(error)) = ended {
            tracing::error!("the HTTP port stopped: {error}");
        }
    }
}

fn router(pages: Arc<Pages>) -> Router {
    Router::new()
        .route("/", get(front_page))
        .route("/health", get(health_page))
        .route("/metrics", get(metrics_page))
        .with_state(pages)
}

async fn front_page() -> String {
    format!(
        "Rekindle {}: the server runs; its admin UI comes in a later version. See /health and /metrics.\n",
        env!("CARGO_PKG_VERSION")
    )
}

async fn health_page(State(pages): State<Arc<Pages>>) -> Response {
    let (ready, body) = pages.health.to_json();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn metrics_page(State(pages): State<Arc<Pages>>) -> Response {
    // Engine statistics may access files, so they are not collected on the async thread.
    let page = tokio::task::spawn_blocking(move || pages.sources.page()).await;
    match page {
        Ok(page) => ([(header::CONTENT_TYPE, OPENMETRICS)], page).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
