//! The event loop: lets time pass and runs due work in an order that the seed draws.

use std::time::Duration;

use io::Nanos;

use crate::faults;
use crate::feeds::FeedReader;
use crate::history::Outcome;
use crate::invariant::{Invariant, Violation};
use crate::machine::{End, Machine};
use crate::scenarios::{self, Scenario};
use crate::trace::{self, Trace, trace_line};
use crate::world::World;

/// More steps than this at one moment mean that the program loops without progress.
const STEPS_MAX: u64 = 200_000;

/// A world and its pending events.
pub(crate) struct Driver {
    pub(crate) world: World,
    scenario: Option<Scenario>,
    next_fault: Option<Nanos>,
    clients_send: bool,
    feeds_read: bool,
    trace: Trace,
}

impl Driver {
    /// No faults happen and no client sends requests.
    pub(crate) fn new(world: World) -> Driver {
        Driver {
            world,
            scenario: None,
            next_fault: None,
            clients_send: false,
            feeds_read: false,
            trace: Trace::default(),
        }
    }

    /// Clients send requests and faults happen from now on.
    pub(crate) fn begin(&mut self) {
        (self.clients_send, self.feeds_read) = (true, true);
        self.next_fault = Some(self.world.now());
    }

    /// Ends the faults and the operations of clients.
    pub(crate) fn end_faults(&mut self) {
        (self.clients_send, self.next_fault, self.world.power_fails_on_ack) = (false, None, false);
        self.scenario = None;
    }

    /// A digest of all events.
    pub(crate) fn trace(&self) -> Trace {
        self.trace
    }

    /// Lets time pass until `done`; fails when that takes longer than `timeout`.
    pub(crate) fn run_until_or(
        &mut self,
        timeout: Duration,
        done: impl Fn(&World) -> bool,
        what: &str,
    ) -> Result<(), Violation> {
        let end = self.world.now().after(timeout);
        match self.run_until(end, done)? {
            true => Ok(()),
            false => Err(Invariant::Settles.violated(format!("not within {timeout:?}: {what}"))),
        }
    }

    /// Lets time pass until `end`, or until `done`; returns whether `done` became true.
    pub(crate) fn run_until(&mut self, end: Nanos, done: impl Fn(&World) -> bool) -> Result<bool, Violation> {
        loop {
            self.run_due()?;
            if let Some(what) = self.world.elections.conflict() {
                return Err(Invariant::Leads.violated(what));
            }
            if let Some(scenario) = self.scenario.take() {
                self.scenario = scenarios::step(&mut self.world, scenario);
            }
            if done(&self.world) {
                return Ok(true);
            }
            let next = self.next_at();
            if next > end {
                self.advance(end);
                return Ok(false);
            }
            self.advance(next);
            for (host, event) in self.world.net.deliver() {
                if let Some(running) = &mut self.world.machines[host.0].running {
                    running.receive(event);
                }
            }
            if self.next_fault.is_some_and(|at| at <= self.world.now()) {
                self.next_fault = Some(faults::step(&mut self.world, &mut self.scenario));
            }
        }
    }

    fn advance(&mut self, to: Nanos) {
        self.world.clock.advance(to.since(self.world.now()));
        self.world.history.now = self.world.now();
        trace::set_now(to.0);
    }

    fn next_at(&self) -> Nanos {
        let links = self.world.machines.iter().filter_map(|machine| machine.running.as_ref()?.wake_at());
        let clients = self.world.clients.iter().map(|client| client.next_at).filter(|_| self.clients_send);
        let own = [
            self.world.tasks.next_at(),
            self.world.net.next_at(),
            self.next_fault,
            self.scenario.as_ref().map(Scenario::until),
        ];
        let feeds = self.world.feeds.iter().filter_map(FeedReader::next_at).filter(|_| self.feeds_read);
        let next = own.into_iter().flatten().chain(links).chain(clients).chain(feeds).min();
        next.unwrap_or(Nanos(u64::MAX)).max(self.world.now())
    }

    /// Runs all links and tasks that are due, in an order that the seed draws.
    fn run_due(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS_MAX {
            self.poll()?;
            let now = self.world.now();
            let due: Vec<usize> = (0..self.world.machines.len())
                .filter(|nth| {
                    self.world.machines[*nth].running.as_ref().is_some_and(|running| running.is_due(now))
                })
                .collect();
            let ready = self.world.tasks.ready();
            if due.is_empty() && ready == 0 {
                return Ok(());
            }
            let drawn = self.world.random.below((due.len() + ready) as u64) as usize;
            match due.get(drawn) {
                Some(nth) => {
                    let Machine { host, running, .. } = &mut self.world.machines[*nth];
                    if let Some(running) = running {
                        running.step(*host, now, &self.world.tasks, &mut self.world.net);
                    }
                    self.trace.note(&[now.0, 1, *nth as u64]);
                }
                None => {
                    let task = self.world.tasks.run_one()?;
                    self.trace.note(&[now.0, 2, task.unwrap_or(0)]);
                }
            }
        }
        let what = format!("the program loops at {:?}:\n{}", self.world.now(), self.world.tasks.describe());
        Err(Invariant::Runs.violated(what))
    }

    /// Polls machines and clients: starts that ended, results, and operations that are due.
    fn poll(&mut self) -> Result<(), Violation> {
        for machine in &mut self.world.machines {
            match machine.look() {
                Ok(false) => {}
                Ok(true) => {
                    trace_line!("node {} learns of its removal and ends", machine.plan.number);
                    machine.end(End::Killed, &self.world.tasks, &mut self.world.net);
                }
                Err(why) => {
                    let what = format!("node {} does not start: {why}", machine.plan.number);
                    return Err(Invariant::Runs.violated(what));
                }
            }
        }
        if let Some(machine) = self.world.machines.iter().find(|machine| machine.rows_are_ahead()) {
            let what = format!("node {} has rows that its log does not have", machine.plan.number);
            return Err(Invariant::Follows.violated(what));
        }
        let now = self.world.now();
        let mut is_power_lost = false;
        for client in &mut self.world.clients {
            if let Some((number, outcome)) = client.look(now, &self.world.machines, &mut self.world.history) {
                is_power_lost |= self.world.power_fails_on_ack && self.world.history.is_write_done(number);
                let value = match outcome {
                    Outcome::Done(value) => value.unwrap_or(1),
                    Outcome::Refused(_) => 2,
                    Outcome::Unknown(_) => 3,
                };
                self.trace.note(&[now.0, 3, number, value]);
            }
            if self.clients_send && client.next_at <= now {
                let (machines, tasks) = (&self.world.machines, &self.world.tasks);
                client.ask(
                    now,
                    &self.world.workload,
                    &self.world.random,
                    machines,
                    tasks,
                    &mut self.world.history,
                );
            }
        }
        if self.feeds_read {
            let (machines, tasks) = (&self.world.machines, &self.world.tasks);
            let feeds = self.world.feeds.iter_mut();
            feeds.into_iter().try_for_each(|feed| feed.step(now, machines, tasks, &self.world.random))?;
        }
        if is_power_lost {
            self.world.power_fails_on_ack = false;
            self.world.fail_all_power();
        }
        Ok(())
    }
}
