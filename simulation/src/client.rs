//! Clients: each asks one thing at a time, of any node, and notes what it is told.

use std::sync::Arc;
use std::time::Duration;

use io::Nanos;
use io::sim::{Process, SimRandom, Tasks};
use parking_lot::Mutex;

use crate::executor;
use crate::history::{Document, History, Kind, Mode, Op, Outcome};
use crate::machine::Machine;
use crate::trace::say;

/// A client gives an answer up after this.
const PATIENCE: Duration = Duration::from_secs(20);

/// One client.
pub struct Client {
    waits: Option<Waiting>,
    /// When it asks next.
    pub next_at: Nanos,
}

struct Waiting {
    op: Op,
    process: Process,
    until: Nanos,
    answer: Arc<Mutex<Option<Outcome>>>,
}

/// What clients ask.
pub struct Workload {
    /// The tables, by name.
    pub tables: Vec<String>,
    /// How many documents of each are asked for.
    pub documents: u64,
    /// How many others are asked for now and then.
    pub seldom: u64,
    /// The longest pause between two questions of a client.
    pub pause_most: Duration,
    /// Whether leaders are asked as often as majorities.
    pub asks_leaders: bool,
}

impl Workload {
    fn draw(&self, random: &SimRandom) -> (Document, Kind) {
        let table = self.tables[random.below(self.tables.len() as u64) as usize].clone();
        let number = match self.seldom > 0 && random.one_in(8) {
            true => self.documents + random.below(self.seldom),
            false => random.below(self.documents),
        };
        let kind = match random.below(20) {
            0..=3 if self.asks_leaders => Kind::Read(Mode::Single),
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
    /// A client that asks at `next_at`.
    #[must_use]
    pub fn new(next_at: Nanos) -> Client {
        Client { waits: None, next_at }
    }

    /// Whether nothing of it is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waits.is_none()
    }

    /// Asks something new of any machine that serves.
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
            now.after(Duration::from_micros(1 + random.below(workload.pause_most.as_micros() as u64)));
        let serving: Vec<&Machine> = machines.iter().filter(|machine| machine.node().is_some()).collect();
        if self.waits.is_some() || serving.is_empty() {
            return;
        }
        let machine = serving[random.below(serving.len() as u64) as usize];
        let (document, kind) = workload.draw(random);
        self.send(history.ask(document, kind), now, machine, tasks);
    }

    /// Asks `op` of one machine.
    pub fn send(&mut self, op: Op, now: Nanos, machine: &Machine, tasks: &Tasks) {
        let Some(life) = &machine.life else { return };
        let Some(node) = life.node.as_ref().map(Arc::downgrade) else { return };
        let answer: Arc<Mutex<Option<Outcome>>> = Arc::default();
        let (told, asked) = (answer.clone(), op.clone());
        say!("client asks node {}: {:?} {:?}", machine.plan.number, op.number, (&op.document, op.kind));
        tasks.within(life.process, || {
            let work = move || {
                let Some(node) = node.upgrade() else { return };
                let outcome = executor::perform(&node, &asked);
                *told.lock() = Some(outcome);
            };
            drop(io::task::spawn("client", work));
        });
        self.waits = Some(Waiting { op, process: life.process, until: now.after(PATIENCE), answer });
    }

    /// Notes an answer, or that none will come; true when it did.
    pub fn look(
        &mut self,
        now: Nanos,
        machines: &[Machine],
        history: &mut History,
    ) -> Option<(u64, Outcome)> {
        let waits = self.waits.as_ref()?;
        let told = waits.answer.lock().take();
        let lives = || machines.iter().any(|m| m.life.as_ref().is_some_and(|l| l.process == waits.process));
        let outcome = match told {
            Some(outcome) => outcome,
            None if !lives() => Outcome::Unknown("the node has gone".to_owned()),
            None if waits.until <= now => Outcome::Unknown("it takes too long".to_owned()),
            None => return None,
        };
        let number = waits.op.number;
        say!("client hears of {number}: {outcome:?}");
        history.answer(number, outcome.clone());
        self.waits = None;
        Some((number, outcome))
    }
}
