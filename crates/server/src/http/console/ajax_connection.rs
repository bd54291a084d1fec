//! The connections of `/ajax/reql`: each request sends a frame and waits for the next answer with its token.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use protocol::Token;
use protocol::frame::{self, HEADER_BYTES};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::sync::oneshot;

/// A connection without requests is closed after this time, as in RethinkDB.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// How often connections are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A request for the next part of a stream is answered with an empty one after this time.
const CONTINUE_MAX: Duration = Duration::from_secs(60);

/// Connections of a server.
const CONNECTIONS_MAX: usize = 1_000;

/// What a request was answered with.
pub(super) enum Outcome {
    Frame(Bytes),
    /// The stream has no element yet.
    Nothing,
    /// The connection was idle, or waited for a query, for too long.
    TimedOut,
    /// The connection was closed.
    Closed,
}

type Waiting = HashMap<u64, VecDeque<oneshot::Sender<Bytes>>, RandomState>;

/// A driver connection whose queries come as HTTP requests.
pub(super) struct AjaxConnection {
    user: String,
    writer: tokio::sync::Mutex<WriteHalf<DuplexStream>>,
    waiting: Mutex<Waiting>,
    /// Answers for which a CONTINUE was sent, and whose request was answered with [`Outcome::Nothing`].
    owed: Mutex<HashMap<u64, oneshot::Receiver<Bytes>, RandomState>>,
    used: Mutex<Instant>,
    has_timed_out: AtomicBool,
    closed: Notify,
}

impl AjaxConnection {
    /// Sends a frame and waits for its answer.
    pub(super) async fn send(&self, token: Token, body: &[u8], is_continue: bool) -> Outcome {
        *self.used.lock() = Instant::now();
        let owed = if is_continue { self.owed.lock().remove(&token.0) } else { None };
        let mut answer = match owed {
            Some(answer) => answer,
            None => match self.begin(token, body).await {
                Some(answer) => answer,
                None => return self.end(),
            },
        };
        let outcome = if is_continue {
            match tokio::time::timeout(CONTINUE_MAX, &mut answer).await {
                Ok(frame) => frame.map_or_else(|_| self.end(), Outcome::Frame),
                Err(_) => {
                    self.owed.lock().insert(token.0, answer);
                    Outcome::Nothing
                }
            }
        } else {
            answer.await.map_or_else(|_| self.end(), Outcome::Frame)
        };
        *self.used.lock() = Instant::now();
        outcome
    }

    /// Sends a frame. `None` if the connection has ended.
    async fn begin(&self, token: Token, body: &[u8]) -> Option<oneshot::Receiver<Bytes>> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        frame::write(&mut bytes, token, body)?;
        let (sender, receiver) = oneshot::channel();
        let mut writer = self.writer.lock().await;
        self.waiting.lock().entry(token.0).or_default().push_back(sender);
        writer.write_all(&bytes).await.ok()?;
        Some(receiver)
    }

    fn end(&self) -> Outcome {
        if self.has_timed_out.load(Ordering::Relaxed) { Outcome::TimedOut } else { Outcome::Closed }
    }

    /// Passes answers to the requests that wait for them, until the connection ends.
    async fn receive(&self, mut reader: ReadHalf<DuplexStream>) {
        let pass_all = async {
            while let Some((token, bytes)) = read_frame(&mut reader).await {
                self.pass_on(token, bytes);
            }
        };
        tokio::select! {
            () = pass_all => {}
            () = self.idle() => self.has_timed_out.store(true, Ordering::Relaxed),
            () = self.closed.notified() => {}
        }
        self.waiting.lock().clear();
        self.owed.lock().clear();
    }

    /// Returns when there was no request for too long.
    async fn idle(&self) {
        while self.used.lock().elapsed() <= IDLE_MAX {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    fn pass_on(&self, token: Token, bytes: Bytes) {
        let mut waiting = self.waiting.lock();
        let Some(queue) = waiting.get_mut(&token.0) else { return };
        if let Some(sender) = queue.pop_front() {
            // Fails if the browser has gone.
            drop(sender.send(bytes));
        }
        if queue.is_empty() {
            waiting.remove(&token.0);
        }
    }
}

/// The next frame, with its header.
async fn read_frame(reader: &mut ReadHalf<DuplexStream>) -> Option<(Token, Bytes)> {
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).await.ok()?;
    let (token, length) = frame::read_header(&header);
    let mut bytes = header.to_vec();
    bytes.resize(HEADER_BYTES + length, 0);
    reader.read_exact(bytes.get_mut(HEADER_BYTES..)?).await.ok()?;
    Some((token, bytes.into()))
}

/// The connections of a server, by their ids.
#[derive(Clone, Default)]
pub(super) struct AjaxConnections(Arc<Mutex<HashMap<String, Arc<AjaxConnection>, RandomState>>>);

impl AjaxConnections {
    /// Adds a connection of `user`; false if there are too many.
    pub(super) fn add(&self, id: String, user: String, stream: DuplexStream) -> bool {
        let (reader, writer) = tokio::io::split(stream);
        let connection = Arc::new(AjaxConnection {
            user,
            writer: tokio::sync::Mutex::new(writer),
            waiting: Mutex::default(),
            owed: Mutex::default(),
            used: Mutex::new(Instant::now()),
            has_timed_out: AtomicBool::new(false),
            closed: Notify::new(),
        });
        {
            let mut open = self.0.lock();
            if open.len() >= CONNECTIONS_MAX {
                return false;
            }
            open.insert(id.clone(), connection.clone());
        }
        let connections = self.clone();
        tokio::spawn(async move {
            connection.receive(reader).await;
            connections.0.lock().remove(&id);
        });
        true
    }

    /// An open connection of `user`.
    pub(super) fn find(&self, id: &str, user: &str) -> Option<Arc<AjaxConnection>> {
        self.0.lock().get(id).filter(|connection| connection.user == user).cloned()
    }

    /// Closes a connection; its queries end.
    pub(super) fn close(&self, id: &str) {
        if let Some(connection) = self.0.lock().remove(id) {
            connection.closed.notify_one();
        }
    }
}
