//! The links of a node as everybody else sees them: a handle that never waits, and the party that
//! the network drives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use io::{Clock, ConnectionId, LoopWaker, Nanos, NetworkCommand, NetworkEvent, NetworkHandler};
use parking_lot::Mutex;

use super::contract::{LinkOptions, LinkTimings, MayFound, PeerInfo, Receiver};
use super::log_message::Message;
use super::machine::{Beginning, Command, Effect, Machine, Note};
use super::stats::PeerStats;
use crate::{OnResponse, Responder, RpcClient, RpcError, ServerId};

/// The handle to all links of a node. Its calls hand something over and return; clones are the same.
#[derive(Clone)]
pub struct Links(Arc<Shared>);

struct Shared {
    loop_waker: Arc<LoopWaker>,
    /// `None` once the party is gone.
    inbox: Mutex<Option<Vec<Command>>>,
    /// Whether requests may lie in the inbox for which nobody has rung.
    lies_aside: AtomicBool,
    linked: ArcSwap<BTreeMap<ServerId, Linked>>,
    /// The figures of every server that was ever linked.
    stats: Mutex<BTreeMap<ServerId, (String, Arc<PeerStats>)>>,
    begin: Mutex<Option<Machine>>,
    clock: Arc<dyn Clock>,
    timings: Mutex<LinkTimings>,
}

#[derive(Clone)]
struct Linked {
    info: Arc<PeerInfo>,
    is_silent: bool,
}

impl Links {
    /// Links that nobody drives yet: what is asked for waits until [`Links::party`] is stepped.
    #[must_use]
    pub fn new(options: LinkOptions) -> Links {
        let LinkOptions { me, join, book, timings, limits, clock, random } = options;
        let started_ms = u64::try_from(clock.unix().as_millis()).unwrap_or(u64::MAX);
        let now = clock.now();
        let machine = Machine::new(Beginning { me, join, book, timings, limits, random, now, started_ms });
        Links(Arc::new(Shared {
            loop_waker: Arc::default(),
            inbox: Mutex::new(Some(Vec::new())),
            lies_aside: AtomicBool::new(false),
            linked: ArcSwap::default(),
            stats: Mutex::default(),
            begin: Mutex::new(Some(machine)),
            clock,
            timings: Mutex::new(timings),
        }))
    }

    /// What the network has to drive, and to whom it hands what arrives. `None` the second time.
    #[must_use]
    pub fn party(&self, receiver: Arc<dyn Receiver>) -> Option<LinkParty> {
        let machine = self.0.begin.lock().take()?;
        let (wanted, effects) = (Vec::new(), Vec::new());
        Some(LinkParty { machine, shared: self.0.clone(), receiver, wanted, effects })
    }

    /// The bell that tells the driver of the party that there is something to do.
    #[must_use]
    pub fn loop_waker(&self) -> Arc<LoopWaker> {
        self.0.loop_waker.clone()
    }

    /// Sends `log_messages` to replicas on `to`. Dropped when there is no link, or no room.
    pub fn send(&self, to: ServerId, log_messages: Vec<Message>) {
        self.0.hand_in(Command::Send { to, log_messages });
    }

    /// Dials `address`, `host:port`, until a server is found there.
    pub fn join(&self, address: &str) {
        self.0.hand_in(Command::Join(address.to_owned()));
    }

    /// Removes `server` from the cluster for good: its link ends here and everywhere, and no
    /// server takes it back.
    pub fn forget(&self, server: ServerId) {
        self.0.hand_in(Command::Forget(server));
    }

    /// Changes how patient links are, from now on.
    pub fn set_timings(&self, timings: LinkTimings) {
        *self.0.timings.lock() = timings;
        self.0.hand_in(Command::Timings(timings));
    }

    /// A link on which nothing arrives for `timeout` ends, from now on.
    pub fn set_heartbeat(&self, timeout: Duration) {
        let timings = LinkTimings { heartbeat_timeout: timeout, ..*self.0.timings.lock() };
        self.set_timings(timings);
    }

    /// What a server, this one perhaps, is called from now on, whatever it says itself.
    pub fn set_name(&self, server: ServerId, name: &str) {
        self.0.hand_in(Command::Name(server, name.to_owned()));
    }

    /// Whether this node, which looks for a cluster, may make one with the servers at the addresses it joins if
    /// those belong to none either. No until this is called.
    pub fn set_may_found(&self, may_found: MayFound) {
        self.0.hand_in(Command::MayFound(may_found));
    }

    /// Ends every link, telling the others; requests under way are answered with an error.
    pub fn close(&self) {
        self.0.hand_in(Command::Close);
    }

    /// The servers that are linked now, silent ones too.
    #[must_use]
    pub fn peers(&self) -> Vec<Arc<PeerInfo>> {
        self.0.linked.load().values().map(|linked| linked.info.clone()).collect()
    }

    /// Whether `server` is linked and heard from.
    #[must_use]
    pub fn is_heard(&self, server: ServerId) -> bool {
        self.0.linked.load().get(&server).is_some_and(|linked| !linked.is_silent)
    }

    /// Name and figures of every server that was linked since the start.
    #[must_use]
    pub fn stats(&self) -> Vec<(ServerId, String, Arc<PeerStats>)> {
        let stats = self.0.stats.lock();
        stats.iter().map(|(server, (name, stats))| (*server, name.clone(), stats.clone())).collect()
    }
}

impl RpcClient for Links {
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.0.hand_in(Command::Call { to: server, request, timeout, on_response });
    }

    fn call_buffered(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        if self.0.lay_in(Command::Call { to: server, request, timeout, on_response }) {
            self.0.lies_aside.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {
        if self.0.lies_aside.swap(false, Ordering::AcqRel) {
            self.0.loop_waker.wake();
        }
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.0.linked.load().contains_key(&server)
    }
}

impl Shared {
    fn hand_in(&self, command: Command) {
        if self.lay_in(command) {
            self.loop_waker.wake();
        }
    }

    /// Puts it where the party takes it from when it is stepped; false if there is no party any more, and a request has
    /// been on_response.
    fn lay_in(&self, command: Command) -> bool {
        if let Some(inbox) = &mut *self.inbox.lock() {
            inbox.push(command);
            return true;
        }
        if let Command::Call { to, on_response, .. } = command {
            on_response(Err(RpcError::NotConnected(to)));
        }
        false
    }

    fn has_wanted(&self) -> bool {
        self.inbox.lock().as_ref().is_some_and(|inbox| !inbox.is_empty())
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<ServerId, Linked>)) {
        let mut linked = (**self.linked.load()).clone();
        change(&mut linked);
        self.linked.store(Arc::new(linked));
    }
}

/// Memory for so many commands and effects is kept from one step to the next.
const KEPT_MAX: usize = 1024;
/// What is wanted as a consequence of a step is taken into the same step so many times.
const ROUNDS_MAX: usize = 4;

/// The links of one node, to be driven by one thread or by a simulation. Dropped, it answers what
/// was asked and never will be.
pub struct LinkParty {
    machine: Machine,
    shared: Arc<Shared>,
    receiver: Arc<dyn Receiver>,
    // Empty between steps; kept for their memory.
    wanted: Vec<Command>,
    effects: Vec<Effect>,
}

impl NetworkHandler for LinkParty {
    fn step(
        &mut self,
        now: Nanos,
        happened: &mut Vec<NetworkEvent>,
        orders: &mut Vec<NetworkCommand>,
    ) -> Nanos {
        // Most requests are answered when they are told: such answers leave with what is sent anyway.
        for _ in 0..ROUNDS_MAX {
            self.take_wanted();
            let LinkParty { machine, receiver, wanted, effects, .. } = self;
            machine.step(now, happened, wanted, &|cluster, by| receiver.may_adopt(cluster, by), effects);
            let mut effects = std::mem::take(&mut self.effects);
            for effect in effects.drain(..) {
                self.tell(effect);
            }
            self.effects = effects;
            if !self.shared.has_wanted() {
                break;
            }
        }
        self.machine.orders(orders);
        self.wanted.shrink_to(KEPT_MAX);
        self.effects.shrink_to(KEPT_MAX);
        self.machine.wake_at()
    }
}

impl LinkParty {
    fn take_wanted(&mut self) {
        if let Some(inbox) = &mut *self.shared.inbox.lock() {
            std::mem::swap(inbox, &mut self.wanted);
        }
    }

    fn tell(&self, effect: Effect) {
        match effect {
            Effect::LogMessages(from, log_messages) => self.receiver.log_messages(from, log_messages),
            Effect::Request { from, link, number, request } => {
                self.receiver.handle(from, request, self.reply(from, link, number));
            }
            Effect::Answer(on_response, result) => on_response(result),
            Effect::Connected(info, stats) => {
                self.shared.stats.lock().insert(info.server, (info.name.clone(), stats));
                let linked = Linked { info: info.clone(), is_silent: false };
                self.shared.change(|all| drop(all.insert(info.server, linked)));
                self.receiver.connected(&info);
            }
            Effect::Silent(server) => {
                self.set_silent(server, true);
                self.receiver.silent(server);
            }
            Effect::Back(server) => {
                self.set_silent(server, false);
                self.receiver.back(server);
            }
            Effect::Unlinked(server) => self.shared.change(|all| drop(all.remove(&server))),
            Effect::Removed => self.receiver.removed(),
            Effect::Found(cluster) => {
                let founded = self.receiver.founds(cluster).map(|()| cluster);
                self.shared.hand_in(Command::Founded(founded));
            }
            Effect::KeepBook(text) => self.receiver.keep_book(&text),
            Effect::Note(Note::Info, text) => tracing::info!("{text}"),
            Effect::Note(Note::Warning, text) => tracing::warn!("{text}"),
        }
    }

    fn set_silent(&self, server: ServerId, is_silent: bool) {
        self.shared.change(|all| {
            if let Some(linked) = all.get_mut(&server) {
                linked.is_silent = is_silent;
            }
        });
    }

    fn reply(&self, to: ServerId, link: ConnectionId, number: u64) -> Responder {
        let mut due = DueReply { shared: self.shared.clone(), to, link, number, is_given: false };
        Box::new(move |result| due.give(result))
    }
}

impl Drop for LinkParty {
    fn drop(&mut self) {
        let left = self.shared.inbox.lock().take().unwrap_or_default();
        let now = self.shared.clock.now();
        let mut wanted = std::iter::once(Command::Close).chain(left).collect();
        let mut effects = Vec::new();
        self.machine.step(now, &mut Vec::new(), &mut wanted, &|_, _| Err(String::new()), &mut effects);
        for effect in effects {
            self.tell(effect);
        }
    }
}

/// An answer that is owed: whoever drops it has refused.
struct DueReply {
    shared: Arc<Shared>,
    to: ServerId,
    link: ConnectionId,
    number: u64,
    is_given: bool,
}

impl DueReply {
    fn give(&mut self, result: Result<Bytes, String>) {
        self.is_given = true;
        let DueReply { to, link, number, .. } = *self;
        self.shared.hand_in(Command::Respond { to, link, number, result });
    }
}

impl Drop for DueReply {
    fn drop(&mut self) {
        if !self.is_given {
            self.give(Err("nobody answers this request".to_owned()));
        }
    }
}
