//! Tests of the network thread over real sockets.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::Token;
use mio::unix::SourceFd;

use super::*;
use crate::real::RealClock;

const LONG: Duration = Duration::from_secs(60);

/// Sends everything back to its sender.
struct Mirror;

impl NetworkHandler for Mirror {
    fn step(
        &mut self,
        now: Nanos,
        network_events: &mut Vec<NetworkEvent>,
        commands: &mut Vec<NetworkCommand>,
    ) -> Nanos {
        for event in network_events.drain(..) {
            if let NetworkEvent::Arrived(connection, bytes) = event {
                commands.push(NetworkCommand::Send { connection, bytes: vec![bytes], notify_drained: false });
            }
        }
        now.after(LONG)
    }
}

/// Dials once, sends once, and reports its events.
struct Caller {
    address: Option<String>,
    message: Bytes,
    sender: Sender<NetworkEvent>,
}

impl NetworkHandler for Caller {
    fn step(
        &mut self,
        now: Nanos,
        network_events: &mut Vec<NetworkEvent>,
        commands: &mut Vec<NetworkCommand>,
    ) -> Nanos {
        let id = ConnectionId::dialed(1);
        if let Some(address) = self.address.take() {
            commands.push(NetworkCommand::Connect(id, address));
        }
        for event in network_events.drain(..) {
            if matches!(event, NetworkEvent::Connected(..)) {
                let pieces = self.message.chunks(10_000).map(Bytes::copy_from_slice).collect();
                commands.push(NetworkCommand::Send { connection: id, bytes: pieces, notify_drained: true });
            }
            drop(self.sender.send(event));
        }
        now.after(LONG)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tls")
}

fn mutual() -> Tls {
    Tls::mutual(&folder().join("node.key"), &folder().join("node.pem"), &folder().join("authority.pem"))
        .unwrap()
}

fn start(
    handler: impl NetworkHandler + 'static,
    listeners: Vec<StdListener>,
    tls: Option<Tls>,
) -> NetworkThread {
    NetworkThread::start("test", handler, Arc::default(), listeners, tls, Arc::new(RealClock::new())).unwrap()
}

fn comes_back(tls: Option<Tls>, host: &str) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = format!("{host}:{}", listener.local_addr().unwrap().port());
    let place = listener.local_addr().unwrap().to_string();
    let _mirror = start(Mirror, vec![listener], tls.clone());
    let message: Bytes = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (sender, network_events) = channel();
    let _caller = start(Caller { address: Some(address), message: message.clone(), sender }, Vec::new(), tls);
    let (mut returned, mut has_drained) = (Vec::new(), false);
    while returned.len() < message.len() || !has_drained {
        match network_events.recv_timeout(LONG).expect("something happens") {
            NetworkEvent::Connected(_, ends) => assert_eq!(ends.remote, place),
            NetworkEvent::Arrived(_, bytes) => returned.extend_from_slice(&bytes),
            NetworkEvent::Drained(_) => has_drained = true,
            other => panic!("{other:?}"),
        }
    }
    assert!(returned == message, "the same bytes come back");
}

#[test]
fn bytes_come_in_order_and_once() {
    comes_back(None, "127.0.0.1");
}

#[test]
fn a_name_is_looked_up() {
    comes_back(None, "localhost");
}

#[test]
fn bytes_come_in_order_and_once_inside_tls() {
    comes_back(Some(mutual()), "127.0.0.1");
}

/// As RethinkDB's documentation recommends for a cluster.
#[test]
fn one_certificate_that_all_use_and_trust_is_enough() {
    let (key, chain) = (folder().join("self-signed.key"), folder().join("self-signed.pem"));
    comes_back(Some(Tls::mutual(&key, &chain, &chain).unwrap()), "127.0.0.1");
}

/// How a dialed connection ends, and the bytes that arrived.
fn closing_reason(dialed: Option<Tls>, dialing: Option<Tls>) -> (String, Option<Bytes>) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let _mirror = start(Mirror, vec![listener], dialed);
    let (sender, network_events) = channel();
    let message = Bytes::from_static(&[b'R'; 24]);
    let _caller = start(Caller { address: Some(address), message, sender }, Vec::new(), dialing);
    let mut arrived = None;
    loop {
        match network_events.recv_timeout(LONG).expect("something happens") {
            NetworkEvent::Closed(_, why) => return (why, arrived),
            NetworkEvent::Arrived(_, bytes) => arrived = Some(bytes),
            _ => {}
        }
    }
}

#[test]
fn a_trusted_certificate_is_not_trusted_with_the_key_or_name_of_another() {
    let self_signed = |authorities: &str| {
        let (key, chain) = (folder().join("self-signed.key"), folder().join("self-signed.pem"));
        Some(Tls::mutual(&key, &chain, &folder().join(authorities)).unwrap())
    };
    // The certificate of an authority, but not a trusted one.
    let (why, _) = closing_reason(self_signed("authority.pem"), self_signed("self-signed.pem"));
    let other = "TLS: the other side does not trust the certificate of this one: it is neither in the --cluster-tls-ca there";
    assert!(why.starts_with(other), "{why}");
    let (why, _) = closing_reason(self_signed("self-signed.pem"), self_signed("authority.pem"));
    let own =
        "TLS: the certificate of the other side is neither in --cluster-tls-ca nor signed by one that is";
    assert_eq!(why, own);
    // Signed by an unknown authority.
    let (why, _) = closing_reason(Some(mutual()), self_signed("self-signed.pem"));
    assert_eq!(why, own);
}

#[test]
fn both_sides_learn_that_only_one_uses_tls() {
    let (_, arrived) = closing_reason(Some(mutual()), None);
    let alert = arrived.expect("an alert");
    assert_eq!(alert[..2], [21, 3]);
}

#[test]
fn a_certificate_of_version_1_is_refused_with_what_to_do() {
    let (key, old) = (folder().join("self-signed.key"), folder().join("version-1.pem"));
    let Err(error) = Tls::mutual(&key, &old, &folder().join("authority.pem")) else { panic!("of version 1") };
    assert!(error.to_string().contains("basicConstraints=CA:FALSE"), "{error}");
    assert!(error.to_string().contains("version-1.pem"), "{error}");
}

/// Drives the loop of `lender` on another thread until `stop` is set. Returns the number of iterations.
fn drive_borrowed(lender: &NetworkThread, stop: Arc<AtomicBool>) -> JoinHandle<usize> {
    let mut borrowed = lender.lend().expect("the thread is there");
    thread::spawn(move || {
        let watched = borrowed.events().unwrap();
        let mut poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).unwrap());
        let mut source = SourceFd(&watched.as_raw_fd());
        poll.registry().register(&mut source, Token(0), Interest::READABLE).unwrap();
        let (mut network_events, mut iterations) = (Events::with_capacity(8), 0);
        let waker = task::Waker::from(Arc::new(Rings(waker)));
        while !stop.load(Ordering::SeqCst) {
            iterations += 1;
            borrowed.receive();
            let rest = borrowed.flush(&waker);
            if !borrowed.has_pending_wake() {
                poll.poll(&mut network_events, Some(rest)).unwrap();
            }
        }
        iterations
    })
}

struct Rings(Arc<Waker>);

impl task::Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.wake().unwrap();
    }
}

#[test]
fn bytes_come_in_order_and_once_on_either_thread() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mirror = start(Mirror, vec![listener], None);
    for round in 0..3 {
        let stop = Arc::new(AtomicBool::new(false));
        let borrower = (round != 1).then(|| drive_borrowed(&mirror, stop.clone()));
        let message = Bytes::from(vec![round; 1_000_000]);
        let (sender, network_events) = channel();
        let _caller = start(
            Caller { address: Some(address.clone()), message: message.clone(), sender },
            Vec::new(),
            None,
        );
        let mut returned = 0;
        while returned < message.len() {
            if let NetworkEvent::Arrived(_, bytes) =
                network_events.recv_timeout(LONG).expect("something happens")
            {
                assert!(bytes.iter().all(|byte| *byte == round));
                returned += bytes.len();
            }
        }
        stop.store(true, Ordering::SeqCst);
        mirror.loop_waker.wake();
        if let Some(borrower) = borrower {
            assert!(borrower.join().unwrap() > 1, "the borrower drove the loop");
        }
    }
}

/// Sends everything back, and reports that it arrived.
struct Teller(Sender<()>);

impl NetworkHandler for Teller {
    fn step(
        &mut self,
        now: Nanos,
        network_events: &mut Vec<NetworkEvent>,
        commands: &mut Vec<NetworkCommand>,
    ) -> Nanos {
        if network_events.iter().any(|event| matches!(event, NetworkEvent::Arrived(..))) {
            self.0.send(()).unwrap();
        }
        Mirror.step(now, network_events, commands)
    }
}

#[test]
fn output_of_several_steps_waits_for_the_borrower_and_leaves_together() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, arrived) = channel();
    let lender = start(Teller(sender), vec![listener], None);
    let mut borrowed = lender.lend().unwrap();
    let mut caller = std::net::TcpStream::connect(address).unwrap();
    for said in [b"one, ", b"two. "] {
        caller.write_all(said).unwrap();
        let until = Instant::now() + LONG;
        while arrived.try_recv().is_err() {
            assert!(Instant::now() < until, "it arrives");
            borrowed.receive();
        }
        caller.set_nonblocking(true).unwrap();
        let early = caller.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(early, Err(ErrorKind::WouldBlock), "nothing leaves before it is sent");
        caller.set_nonblocking(false).unwrap();
    }
    borrowed.flush(task::Waker::noop());
    let mut received = [0; 64];
    let len = caller.read(&mut received).unwrap();
    assert_eq!(&received[..len], b"one, two. ");
}

#[test]
fn a_loop_is_not_returned_after_a_panic() {
    let lender = start(Mirror, Vec::new(), None);
    let borrowed = lender.lend().unwrap();
    let fell = thread::spawn(move || {
        let _borrowed = borrowed;
        panic!("on purpose");
    });
    assert!(fell.join().is_err());
    assert!(lender.lend().is_none(), "the thread has ended");
}

#[test]
fn an_accepted_connection_has_its_local_address() {
    let listener = StdListener::bind("0.0.0.0:0").unwrap();
    let address = format!("127.0.0.2:{}", listener.local_addr().unwrap().port());
    let (sender, network_events) = channel();
    let idle = Caller { address: None, message: Bytes::new(), sender };
    let _dialed = start(idle, vec![listener], None);
    let (sender, _) = channel();
    let dials = Caller { address: Some(address.clone()), message: Bytes::new(), sender };
    let _dialing = start(dials, Vec::new(), None);
    let accepted = network_events.recv_timeout(LONG).unwrap();
    assert!(matches!(&accepted, NetworkEvent::Accepted(_, ends) if ends.local == address), "{accepted:?}");
}

#[test]
fn a_refused_connection_is_reported() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (sender, network_events) = channel();
    let _caller = start(Caller { address: Some(address), message: Bytes::new(), sender }, Vec::new(), None);
    let closed = network_events.recv_timeout(LONG).unwrap();
    assert!(matches!(&closed, NetworkEvent::Closed(_, why) if why.contains("refused")), "{closed:?}");
}

#[test]
fn a_file_that_is_no_certificate_is_named() {
    let (key, chain) = (folder().join("node.key"), folder().join("node.pem"));
    let Err(error) = Tls::mutual(&key, &key, &chain) else { panic!("a key is no certificate") };
    assert!(error.to_string().contains("no certificate can be read from"), "{error}");
    assert!(error.to_string().contains("node.key"), "{error}");
    let Err(error) = Tls::mutual(&chain, &chain, &chain) else { panic!("a certificate is no key") };
    assert!(error.to_string().starts_with("no private key can be read from"), "{error}");
    let foreign = folder().join("foreign.key");
    let Err(error) = Tls::mutual(&foreign, &chain, &chain) else { panic!("the key of another") };
    let shown = error.to_string();
    assert!(
        shown.ends_with("foreign.key cannot be used: the key does not belong to the certificate"),
        "{shown}"
    );
    assert!(shown.contains("node.pem"), "{shown}");
    let Err(error) = Tls::mutual(&key, &chain, &key) else { panic!("a key is no certificate") };
    assert!(matches!(error, TlsError::File { what: TlsFile::Authorities, .. }), "{error}");
}

/// Wakes itself after every step, for a while.
struct Restless {
    loop_waker: Arc<LoopWaker>,
    steps: usize,
    done: Sender<()>,
}

impl NetworkHandler for Restless {
    fn step(
        &mut self,
        now: Nanos,
        _happened: &mut Vec<NetworkEvent>,
        _orders: &mut Vec<NetworkCommand>,
    ) -> Nanos {
        self.steps += 1;
        match self.steps {
            ..100 => self.loop_waker.wake(),
            100 => drop(self.done.send(())),
            _ => {}
        }
        now.after(LONG)
    }
}

#[test]
fn a_handler_that_wakes_itself_is_stepped_without_other_events() {
    let (loop_waker, (done, is_done)) = (Arc::new(LoopWaker::new()), channel());
    let handler = Restless { loop_waker: loop_waker.clone(), steps: 0, done };
    let _thread =
        NetworkThread::start("test", handler, loop_waker, Vec::new(), None, Arc::new(RealClock::new()))
            .unwrap();
    is_done.recv_timeout(LONG / 2).expect("it is stepped before it wants to be");
}
