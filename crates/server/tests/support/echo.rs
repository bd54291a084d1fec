//! A party of the network that answers with what it hears, and says what it is given to say.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::real::{NetworkThread, RealClock};
use io::{Bell, Clock, ConnectionId, Happening, Nanos, Order, Party};

const LONG: Duration = Duration::from_secs(60);

/// A party, who drives it unless that is lent, and the other end of its only connection.
pub struct Echo {
    pub thread: NetworkThread,
    bell: Arc<Bell>,
    to_say: Arc<Mutex<Vec<Bytes>>>,
    other_end: TcpStream,
}

impl Echo {
    pub fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        other_end.set_read_timeout(Some(LONG)).unwrap();
        let (bell, to_say) = (Arc::<Bell>::default(), Arc::<Mutex<Vec<Bytes>>>::default());
        let party = Echoing { to_say: to_say.clone(), connection: None };
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let thread = NetworkThread::start("echo", party, bell.clone(), vec![listener], None, clock).unwrap();
        Echo { thread, bell, to_say, other_end }
    }

    /// What comes back of `said`.
    pub fn of(&self, said: &[u8]) -> Vec<u8> {
        (&self.other_end).write_all(said).unwrap();
        self.hear(said.len())
    }

    /// What the party says when somebody has given it `said` to say and rung.
    pub fn by_itself(&self, said: &'static [u8]) -> Vec<u8> {
        self.to_say.lock().unwrap().push(Bytes::from_static(said));
        self.bell.ring();
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

impl Party for Echoing {
    fn step(&mut self, now: Nanos, happened: &mut Vec<Happening>, orders: &mut Vec<Order>) -> Nanos {
        for happening in happened.drain(..) {
            match happening {
                Happening::Accepted(connection, _) => self.connection = Some(connection),
                Happening::Arrived(connection, bytes) => {
                    orders.push(Order::Send { connection, bytes: vec![bytes], tell: false });
                }
                _ => {}
            }
        }
        if let Some(connection) = self.connection {
            let bytes = std::mem::take(&mut *self.to_say.lock().unwrap());
            orders.push(Order::Send { connection, bytes, tell: false });
        }
        now.after(LONG)
    }
}
