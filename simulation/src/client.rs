//! Clients: each sends one operation at a time to any node and records its result.

use std::sync::Arc;
use std::time::Duration;

use io::Nanos;
use io::sim::{Process, SimRandom, Tasks};
use parking_lot::Mutex;

use crate::executor;
use crate::history::{Document, History, Kind, Mode, Op, Outcome};
use crate::machine::Machine;
use crate::trace::trace_line;

/// A client stops waiting for a result after this time.
const RESULT_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Client {
    waiting: Option<Waiting>,
    /// When it sends the next operation.
    pub next_at: Nanos,
}

struct Waiting {
    op: Op,
    process: Process,
    until: Nanos,
    result: Arc<Mutex<Option<Outcome>>>,
}

/// The operations of the clients.
pub struct Workload {
    /// The tables, by name.
    pub tables: Vec<String>,
    /// The number of documents of each table.
    pub documents: u64,
    /// The number of further documents, which are used rarely.
    pub rare_documents: u64,
    /// The longest pause between two operations of a client.
    pub pause_max: Duration,
    /// Whether reads from leaders are as frequent as majority reads.
    pub reads_from_leaders: bool,
}

impl Workload {
    fn draw(&self, random: &SimRandom) -> (Document, Kind) {
        let table = self.tables[random.below(self.tables.len() as u64) as usize].clone();
        let number = match self.rare_documents > 0 && random.one_in(8) {
            true => self.documents + random.below(self.rare_documents),
            false => random.below(self.documents),
        };
        let kind = match random.below(20) {
            0..=3 if self.reads_from_leaders => Kind::Read(Mode::Single),
            0..=6 => Kind::Read(Mode::Majority),
            7 => Kind::Read(Mode::Single),
            8 => Kind::Read(Mode::Outdated),
            9..=13 => Kind::Put,
            14..=18 => Kind::Swap,
            _ => Kind::Add,
        };
        (Document { table, number }, kind)
    }
}

impl Client {
    /// A client that sends its first operation at `next_at`.
    #[must_use]
    pub fn new(next_at: Nanos) -> Client {
        Client { waiting: None, next_at }
    }

    /// Whether it waits for no result.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_none()
    }

    /// Sends a new operation to a random machine that serves.
    pub fn ask(
        &mut self,
        now: Nanos,
        workload: &Workload,
        random: &SimRandom,
        machines: &[Machine],
        tasks: &Tasks,
        history: &mut History,
    ) {
        self.next_at =
            now.after(Duration::from_micros(1 + random.below(workload.pause_max.as_micros() as u64)));
        let serving: Vec<&Machine> = machines.iter().filter(|machine| machine.node().is_some()).collect();
        if self.waiting.is_some() || serving.is_empty() {
            return;
        }
        let machine = serving[random.below(serving.len() as u64) as usize];
        let (document, kind) = workload.draw(random);
        self.send(history.ask(document, kind), now, machine, tasks);
    }

    pub fn send(&mut self, op: Op, now: Nanos, machine: &Machine, tasks: &Tasks) {
        let Some(running) = &machine.running else { return };
        let Some(node) = running.node.as_ref().map(Arc::downgrade) else { return };
        let result: Arc<Mutex<Option<Outcome>>> = Arc::default();
        let (slot, sent) = (result.clone(), op.clone());
        trace_line!(
            "a client sends to node {}: {:?} {:?}",
            machine.plan.number,
            op.number,
            (&op.document, op.kind)
        );
        tasks.within(running.process, || {
            let work = move || {
                let Some(node) = node.upgrade() else { return };
                let outcome = executor::perform(&node, &sent);
                *slot.lock() = Some(outcome);
            };
            drop(io::task::spawn("client", work));
        });
        self.waiting =
            Some(Waiting { op, process: running.process, until: now.after(RESULT_TIMEOUT), result });
    }

    /// Records a result, or that none will arrive; returns it.
    pub fn look(
        &mut self,
        now: Nanos,
        machines: &[Machine],
        history: &mut History,
    ) -> Option<(u64, Outcome)> {
        let waiting = self.waiting.as_ref()?;
        let received = waiting.result.lock().take();
        let lives =
            || machines.iter().any(|m| m.running.as_ref().is_some_and(|l| l.process == waiting.process));
        let outcome = match received {
            Some(outcome) => outcome,
            None if !lives() => Outcome::Unknown("the node has ended".to_owned()),
            None if waiting.until <= now => Outcome::Unknown("timeout".to_owned()),
            None => return None,
        };
        let number = waiting.op.number;
        trace_line!("operation {number}: {outcome:?}");
        history.answer(number, outcome.clone());
        self.waiting = None;
        Some((number, outcome))
    }
}
