//! `/api/reql`: a WebSocket that carries the frames of drivers to a connection of a worker and back.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::{Buf, BytesMut};
use protocol::frame::{HEADER_BYTES, REQUEST_BYTES_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{MissedTickBehavior, interval};

use super::{Console, SharedConsole, log_in_first, starting};

/// How often it is checked that the session still is one.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Checks between two pings, which keep proxies from closing a quiet connection.
const CHECKS_PER_PING: u32 = 20;

/// Room for the bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// The code with which the socket of an ended session is closed.
const SESSION_ENDED: u16 = 4401;

/// Upgrades the request, as the user of its session.
pub(super) async fn upgrade(
    State(console): SharedConsole,
    Extension(address): Extension<SocketAddr>,
    headers: HeaderMap,
    request: WebSocketUpgrade,
) -> Response {
    if console.backend().is_none() {
        return starting();
    }
    let Some(stream) = console.connect(&headers, address) else { return log_in_first() };
    let size_max = HEADER_BYTES + REQUEST_BYTES_MAX;
    request.max_message_size(size_max).max_frame_size(size_max).on_upgrade(move |socket| async move {
        Carrier { socket, unwritten: Bytes::new(), console, headers }.run(stream).await;
    })
}

/// Copies bytes between a socket and a connection.
struct Carrier {
    socket: WebSocket,
    /// The rest of a message, which the connection has not taken yet.
    unwritten: Bytes,
    console: std::sync::Arc<Console>,
    /// Of the request, with the cookie.
    headers: HeaderMap,
}

impl Carrier {
    async fn run(mut self, stream: DuplexStream) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut received = BytesMut::with_capacity(READ_BYTES);
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut quiet_checks = 0;
        loop {
            // Both directions at once: a connection reads nothing while its client takes nothing.
            tokio::select! {
                count = writer.write(&self.unwritten), if !self.unwritten.is_empty() => match count {
                    Ok(count) if count > 0 => self.unwritten.advance(count),
                    _ => break,
                },
                message = self.socket.recv(), if self.unwritten.is_empty() => match message {
                    Some(Ok(Message::Binary(bytes))) => self.unwritten = bytes,
                    Some(Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                },
                count = reader.read_buf(&mut received) => match count {
                    Ok(count) if count > 0 => {
                        if self.socket.send(Message::Binary(received.split().freeze())).await.is_err() {
                            break;
                        }
                        received.reserve(READ_BYTES);
                    }
                    _ => break,
                },
                _ = checks.tick() => {
                    quiet_checks += 1;
                    if !self.check(quiet_checks).await {
                        break;
                    }
                }
            }
        }
    }

    /// Ends the socket if its session has ended; sometimes sends a ping.
    async fn check(&mut self, checks: u32) -> bool {
        if self.console.user(&self.headers).is_none() {
            let frame = CloseFrame { code: SESSION_ENDED, reason: "The session has ended.".into() };
            drop(self.socket.send(Message::Close(Some(frame))).await);
            return false;
        }
        !checks.is_multiple_of(CHECKS_PER_PING) || self.socket.send(Message::Ping(Bytes::new())).await.is_ok()
    }
}
