//! A network handler that echoes received bytes, and sends messages on demand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::real::{NetworkThread, RealClock};
use io::{Clock, ConnectionId, LoopWaker, Nanos, NetworkCommand, NetworkEvent, NetworkHandler};

const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The handler's thread, and the other end of its only connection.
pub struct Echo {
    pub thread: NetworkThread,
    loop_waker: Arc<LoopWaker>,
    to_send: Arc<Mutex<Vec<Bytes>>>,
    other_end: TcpStream,
}

impl Echo {
    pub fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        other_end.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        let (loop_waker, to_send) = (Arc::<LoopWaker>::default(), Arc::<Mutex<Vec<Bytes>>>::default());
        let handler = EchoHandler { to_send: to_send.clone(), connection: None };
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let thread =
            NetworkThread::start("echo", handler, loop_waker.clone(), vec![listener], None, clock).unwrap();
        Echo { thread, loop_waker, to_send, other_end }
    }

    /// Sends `bytes` and returns the echo.
    pub fn round_trip(&self, bytes: &[u8]) -> Vec<u8> {
        (&self.other_end).write_all(bytes).unwrap();
        self.receive(bytes.len())
    }

    /// Has the handler send `bytes` on its own, and returns what arrives.
    pub fn unprompted(&self, bytes: &'static [u8]) -> Vec<u8> {
        self.to_send.lock().unwrap().push(Bytes::from_static(bytes));
        self.loop_waker.wake();
        self.receive(bytes.len())
    }

    fn receive(&self, len: usize) -> Vec<u8> {
        let mut received = vec![0; len];
        (&self.other_end).read_exact(&mut received).unwrap();
        received
    }
}

struct EchoHandler {
    to_send: Arc<Mutex<Vec<Bytes>>>,
    connection: Option<ConnectionId>,
}

impl NetworkHandler for EchoHandler {
    fn step(
        &mut self,
        now: Nanos,
        happened: &mut Vec<NetworkEvent>,
        orders: &mut Vec<NetworkCommand>,
    ) -> Nanos {
        for happening in happened.drain(..) {
            match happening {
                NetworkEvent::Accepted(connection, _) => self.connection = Some(connection),
                NetworkEvent::Arrived(connection, bytes) => {
                    orders.push(NetworkCommand::Send {
                        connection,
                        bytes: vec![bytes],
                        notify_drained: false,
                    });
                }
                _ => {}
            }
        }
        if let Some(connection) = self.connection {
            let bytes = std::mem::take(&mut *self.to_send.lock().unwrap());
            orders.push(NetworkCommand::Send { connection, bytes, notify_drained: false });
        }
        now.after(READ_TIMEOUT)
    }
}
