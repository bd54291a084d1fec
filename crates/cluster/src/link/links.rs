//! The public interface of a node's links: a handle that never blocks, and the handler that the network drives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use io::{Clock, ConnectionId, LoopWaker, Nanos, NetworkCommand, NetworkEvent, NetworkHandler};

use super::contract::{BootstrapPermission, LinkOptions, LinkTimings, PeerInfo, Receiver};
use super::log_message::Message;
use super::machine::{Call, Command, Effect, LogLevel, Machine, MachineOptions};
use super::stats::PeerStats;
use crate::locks::BriefMutex;
use crate::{OnResponse, Responder, RpcClient, RpcError, ServerId};

/// The handle to all links of a node. Its methods queue a command and return. Clones share the same links.
#[derive(Clone)]
pub struct Links(Arc<Shared>);

struct Shared {
    loop_waker: Arc<LoopWaker>,
    /// Commands for the handler; `None` once the handler was dropped.
    inbox: BriefMutex<Option<Vec<Command>>>,
    /// Whether the inbox may hold buffered requests for which the event loop was not woken.
    has_buffered: AtomicBool,
    linked: ArcSwap<BTreeMap<ServerId, Linked>>,
    /// Statistics of every server that was ever linked.
    stats: BriefMutex<BTreeMap<ServerId, (String, Arc<PeerStats>)>>,
    machine: BriefMutex<Option<Machine>>,
    clock: Arc<dyn Clock>,
    timings: BriefMutex<LinkTimings>,
}

#[derive(Clone)]
struct Linked {
    info: Arc<PeerInfo>,
    is_silent: bool,
}

impl Links {
    /// Creates links that do nothing yet: commands wait until the handler of [`Links::handler`] is stepped.
    #[must_use]
    pub fn new(options: LinkOptions) -> Links {
        let LinkOptions { local, join, address_book, timings, limits, clock, random } = options;
        let started_ms = u64::try_from(clock.unix().as_millis()).unwrap_or(u64::MAX);
        let now = clock.now();
        let machine = Machine::new(MachineOptions {
            local,
            join,
            address_book,
            timings,
            limits,
            random,
            now,
            started_ms,
        });
        Links(Arc::new(Shared {
            loop_waker: Arc::default(),
            inbox: BriefMutex::leaf(Some(Vec::new())),
            has_buffered: AtomicBool::new(false),
            linked: ArcSwap::default(),
            stats: BriefMutex::default(),
            machine: BriefMutex::leaf(Some(machine)),
            clock,
            timings: BriefMutex::leaf(timings),
        }))
    }

    /// The handler for the network to drive; `receiver` takes the events and data. `None` after the first call.
    #[must_use]
    pub fn handler(&self, receiver: Arc<dyn Receiver>) -> Option<LinkHandler> {
        let machine = self.0.machine.lock().take()?;
        let (commands, effects) = (Vec::new(), Vec::new());
        Some(LinkHandler { machine, shared: self.0.clone(), receiver, commands, effects })
    }

    /// Wakes the event loop that drives the handler.
    #[must_use]
    pub fn loop_waker(&self) -> Arc<LoopWaker> {
        self.0.loop_waker.clone()
    }

    /// Sends `log_messages` to replicas on `to`. They are dropped if there is no link or the queue is full.
    pub fn send(&self, to: ServerId, log_messages: Vec<Message>) {
        self.0.submit(Command::Send { to, log_messages });
    }

    /// Dials `address`, `host:port`, until a server answers there.
    pub fn join(&self, address: &str) {
        self.0.submit(Command::Join(address.to_owned()));
    }

    /// Removes `server` from the cluster permanently: its links to all servers end, and no server accepts a new one.
    pub fn forget(&self, server: ServerId) {
        self.0.submit(Command::Forget(server));
    }

    /// Changes the timeouts and intervals of all links.
    pub fn set_timings(&self, timings: LinkTimings) {
        *self.0.timings.lock() = timings;
        self.0.submit(Command::Timings(timings));
    }

    /// Changes the heartbeat timeout: a link that receives nothing for `timeout` ends.
    pub fn set_heartbeat(&self, timeout: Duration) {
        let timings = LinkTimings { heartbeat_timeout: timeout, ..*self.0.timings.lock() };
        self.set_timings(timings);
    }

    /// Sets the name of a server, which may be this one. It takes precedence over the name in the server's hello.
    pub fn set_name(&self, server: ServerId, name: &str) {
        self.0.submit(Command::Name(server, name.to_owned()));
    }

    /// Sets whether this node, while it looks for a cluster, may make one with the servers at the addresses of
    /// `--join` if none of them belongs to a cluster. Not allowed until this is called.
    pub fn set_bootstrap_permission(&self, permission: BootstrapPermission) {
        self.0.submit(Command::AllowBootstrap(permission));
    }

    /// Ends every link with a farewell. Requests in flight fail with an error.
    pub fn close(&self) {
        self.0.submit(Command::Close);
    }

    /// The servers that are linked now, including silent ones.
    #[must_use]
    pub fn peers(&self) -> Vec<Arc<PeerInfo>> {
        self.0.linked.load().values().map(|linked| linked.info.clone()).collect()
    }

    /// Whether `server` is linked and not silent.
    #[must_use]
    pub fn is_responding(&self, server: ServerId) -> bool {
        self.0.linked.load().get(&server).is_some_and(|linked| !linked.is_silent)
    }

    /// Name and statistics of every server that was linked since the start.
    #[must_use]
    pub fn stats(&self) -> Vec<(ServerId, String, Arc<PeerStats>)> {
        let stats = self.0.stats.lock();
        stats.iter().map(|(server, (name, stats))| (*server, name.clone(), stats.clone())).collect()
    }
}

impl RpcClient for Links {
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.0.submit(Command::Call(Call { to: server, request, timeout, on_response }));
    }

    fn call_buffered(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        if self.0.enqueue(Command::Call(Call { to: server, request, timeout, on_response })) {
            self.0.has_buffered.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {
        if self.0.has_buffered.swap(false, Ordering::AcqRel) {
            self.0.loop_waker.wake();
        }
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.0.linked.load().contains_key(&server)
    }
}

impl Shared {
    fn submit(&self, command: Command) {
        if self.enqueue(command) {
            self.loop_waker.wake();
        }
    }

    /// Adds a command to the inbox, which the handler empties at its next step. False if there is no handler any
    /// more; a request then fails at once.
    fn enqueue(&self, command: Command) -> bool {
        if let Some(inbox) = &mut *self.inbox.lock() {
            inbox.push(command);
            return true;
        }
        if let Command::Call(Call { to, on_response, .. }) = command {
            on_response(Err(RpcError::NotConnected(to)));
        }
        false
    }

    fn has_commands(&self) -> bool {
        self.inbox.lock().as_ref().is_some_and(|inbox| !inbox.is_empty())
    }

    fn update_linked(&self, update: impl FnOnce(&mut BTreeMap<ServerId, Linked>)) {
        let mut linked = (**self.linked.load()).clone();
        update(&mut linked);
        self.linked.store(Arc::new(linked));
    }
}

/// The vectors of commands and effects keep at most this capacity from one step to the next.
const KEPT_CAPACITY_MAX: usize = 1024;
/// A step also runs commands that it causes itself, up to this many rounds.
const ROUNDS_PER_STEP_MAX: usize = 4;

/// The links of one node, driven by one thread or by a simulation. When it is dropped, all requests without a
/// response fail.
pub struct LinkHandler {
    machine: Machine,
    shared: Arc<Shared>,
    receiver: Arc<dyn Receiver>,
    // Empty between steps; kept to reuse their memory.
    commands: Vec<Command>,
    effects: Vec<Effect>,
}

impl NetworkHandler for LinkHandler {
    fn step(
        &mut self,
        now: Nanos,
        network_events: &mut Vec<NetworkEvent>,
        network_commands: &mut Vec<NetworkCommand>,
    ) -> Nanos {
        // Most requests are answered while they are handled: their responses leave with the data that is sent anyway.
        for _ in 0..ROUNDS_PER_STEP_MAX {
            self.take_commands();
            let LinkHandler { machine, receiver, commands, effects, .. } = self;
            machine.step(
                now,
                network_events,
                commands,
                &|cluster, by| receiver.may_adopt(cluster, by),
                effects,
            );
            let mut effects = std::mem::take(&mut self.effects);
            for effect in effects.drain(..) {
                self.apply(effect);
            }
            self.effects = effects;
            if !self.shared.has_commands() {
                break;
            }
        }
        self.machine.network_commands(network_commands);
        self.commands.shrink_to(KEPT_CAPACITY_MAX);
        self.effects.shrink_to(KEPT_CAPACITY_MAX);
        self.machine.wake_at()
    }
}

impl LinkHandler {
    fn take_commands(&mut self) {
        if let Some(inbox) = &mut *self.shared.inbox.lock() {
            std::mem::swap(inbox, &mut self.commands);
        }
    }

    fn apply(&self, effect: Effect) {
        match effect {
            Effect::LogMessages(from, log_messages) => self.receiver.log_messages(from, log_messages),
            Effect::Request { from, link, number, request } => {
                self.receiver.handle(from, request, self.responder_to(from, link, number));
            }
            Effect::Response(on_response, result) => on_response(result),
            Effect::Connected(info, stats) => {
                self.shared.stats.lock().insert(info.server, (info.name.clone(), stats));
                let linked = Linked { info: info.clone(), is_silent: false };
                self.shared.update_linked(|all| drop(all.insert(info.server, linked)));
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
            Effect::Unlinked(server) => self.shared.update_linked(|all| drop(all.remove(&server))),
            Effect::Removed => self.receiver.removed(),
            Effect::Bootstrap(cluster) => {
                let result = self.receiver.bootstrap(cluster).map(|()| cluster);
                self.shared.submit(Command::Bootstrapped(result));
            }
            Effect::StoreAddressBook(text) => self.receiver.store_address_book(&text),
            Effect::Log(LogLevel::Info, text) => tracing::info!("{text}"),
            Effect::Log(LogLevel::Warning, text) => tracing::warn!("{text}"),
        }
    }

    fn set_silent(&self, server: ServerId, is_silent: bool) {
        self.shared.update_linked(|all| {
            if let Some(linked) = all.get_mut(&server) {
                linked.is_silent = is_silent;
            }
        });
    }

    fn responder_to(&self, to: ServerId, link: ConnectionId, number: u64) -> Responder {
        let mut pending = PendingResponse { shared: self.shared.clone(), to, link, number, is_sent: false };
        Box::new(move |result| pending.send(result))
    }
}

impl Drop for LinkHandler {
    fn drop(&mut self) {
        let remaining = self.shared.inbox.lock().take().unwrap_or_default();
        let now = self.shared.clock.now();
        let mut commands = std::iter::once(Command::Close).chain(remaining).collect();
        let mut effects = Vec::new();
        self.machine.step(now, &mut Vec::new(), &mut commands, &|_, _| Err(String::new()), &mut effects);
        for effect in effects {
            self.apply(effect);
        }
    }
}

/// The responder of a request; it refuses the request if it is dropped without a response.
struct PendingResponse {
    shared: Arc<Shared>,
    to: ServerId,
    link: ConnectionId,
    number: u64,
    is_sent: bool,
}

impl PendingResponse {
    fn send(&mut self, result: Result<Bytes, String>) {
        self.is_sent = true;
        let PendingResponse { to, link, number, .. } = *self;
        self.shared.submit(Command::Respond { to, link, number, result });
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if !self.is_sent {
            self.send(Err("the request was dropped without a response".to_owned()));
        }
    }
}
