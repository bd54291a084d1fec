//! A party of the network that answers with what it hears, and says what it is given to say.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::real::{NetworkThread, RealClock};
use io::{Clock, ConnectionId, LoopWaker, Nanos, NetworkCommand, NetworkEvent, NetworkHandler};

const LONG: Duration = Duration::from_secs(60);

/// A party, who drives it unless that is lent, and the other end of its only connection.
pub struct Echo {
    pub thread: NetworkThread,
    loop_waker: Arc<LoopWaker>,
    to_say: Arc<Mutex<Vec<Bytes>>>,
    other_end: TcpStream,
}

impl Echo {
    pub fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        other_end.set_read_timeout(Some(LONG)).unwrap();
        let (loop_waker, to_say) = (Arc::<LoopWaker>::default(), Arc::<Mutex<Vec<Bytes>>>::default());
        let party = Echoing { to_say: to_say.clone(), connection: None };
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let thread =
            NetworkThread::start("echo", party, loop_waker.clone(), vec![listener], None, clock).unwrap();
        Echo { thread, loop_waker, to_say, other_end }
    }

    /// What comes back of `said`.
    pub fn of(&self, said: &[u8]) -> Vec<u8> {
        (&self.other_end).write_all(said).unwrap();
        self.hear(said.len())
    }

    /// What the party says when somebody has given it `said` to say and rung.
    pub fn by_itself(&self, said: &'static [u8]) -> Vec<u8> {
        self.to_say.lock().unwrap().push(Bytes::from_static(said));
        self.loop_waker.wake();
        self.hear(said.len())
    }

    fn hear(&self, len: usize) -> Vec<u8> {
        let mut heard = vec![0; len];
        (&self.other_end).read_exact(&mut heard).unwrap();
        heard
    }
}

struct Echoing {
    to_say: Arc<Mutex<Vec<Bytes>>>,
    connection: Option<ConnectionId>,
}

impl NetworkHandler for Echoing {
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
            let bytes = std::mem::take(&mut *self.to_say.lock().unwrap());
            orders.push(NetworkCommand::Send { connection, bytes, notify_drained: false });
        }
        now.after(LONG)
    }
}
