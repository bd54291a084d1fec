//! The HTTP port: the health page, the metrics page, and the console.

mod console;
mod feeds;
mod figures;
mod health;
mod links;
mod memory;
mod metrics;
mod openmetrics;
mod process;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::tls::Encrypted;

pub use console::{Backend, Console};
pub use figures::Figures;
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

/// The address of a client.
#[derive(Clone, Copy)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Plain>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Plain>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, Encrypted>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Encrypted>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

/// The unencrypted connections of one socket.
struct Plain(tokio::net::TcpListener);

impl Listener for Plain {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        // A query is a small packet, and so is its answer. A failure costs time, nothing else.
        drop(stream.set_nodelay(true));
        (stream, address)
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Serves the pages on every socket until the future is dropped; over TLS if `tls` is set.
pub async fn serve(
    sockets: Vec<TcpListener>,
    tls: Option<TlsAcceptor>,
    pages: Arc<Pages>,
    console: Arc<Console>,
) {
    let router = router(pages, console);
    let mut servers = tokio::task::JoinSet::new();
    for socket in sockets {
        let (router, tls) = (router.clone(), tls.clone());
        servers.spawn(async move {
            let socket = tokio::net::TcpListener::from_std(socket)?;
            let service = router.into_make_service_with_connect_info::<Peer>();
            match tls {
                Some(acceptor) => axum::serve(Encrypted::start(socket, acceptor)?, service).await,
                None => axum::serve(Plain(socket), service).await,
            }
        });
    }
    while let Some(ended) = servers.join_next().await {
        if let Ok(Err(error)) = ended {
            tracing::error!("the HTTP port stopped: {error}");
        }
    }
}

fn router(pages: Arc<Pages>, console: Arc<Console>) -> Router {
    let console = console::router(console).layer(from_fn(with_address));
    Router::new()
        .route("/health", get(health_page))
        .route("/metrics", get(metrics_page))
        .with_state(pages)
        .merge(console)
}

/// Tells the console the address of its client.
async fn with_address(
    ConnectInfo(Peer(address)): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(address);
    next.run(request).await
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
