//! What goes wrong: one thing after another, drawn from the seed.

use std::time::Duration;

use cluster::{ShardsWanted, TableChange, Wanted};
use datum::Text;
use io::Nanos;
use io::sim::{Hang, Host, NetworkConditions, Process, SimRandom};

use crate::machine::{End, PACES};
use crate::trace::say;
use crate::world::World;

/// How long a table may take to have its rows where they must be before it is divided.
const ASSEMBLY: Duration = Duration::from_secs(8);

/// What may go wrong in one seed.
#[derive(Clone, Copy, Debug)]
pub struct Climate {
    /// The power may go, not only processes.
    pub loses_power: bool,
    /// Tables are changed while it storms.
    pub reconfigures: bool,
    /// They get other numbers of shards too.
    pub divides: bool,
    /// Clocks on the wall jump.
    pub jumps: bool,
    /// The power goes everywhere when a write has been acknowledged.
    pub strikes: bool,
    /// Processes end and start again at once, and votes are divided while they do.
    pub bounces: bool,
    /// Engines write down what they have, at moments of their own.
    pub flushes: bool,
    /// Replicas that were removed start again where that is not known: see `scheme/reborn.rs`.
    pub bears_again: bool,
    /// Soft writes are lost by those who go on: see `scheme/lapse.rs`.
    pub lapses: bool,
    /// Servers are removed for good: see `scheme/removal.rs`.
    pub removes: bool,
    /// Whoever divides a table ends when others hear of it: see `scheme/cleft.rs`.
    pub cleaves: bool,
    /// Copies of rows are interrupted on both sides: see `scheme/halt.rs`.
    pub halts: bool,
    /// Disks are full, or hang, while their servers live. No process is stopped then: one that goes on answers the first
    /// question as it would have done before, so that nothing could be said of how old an answer may be.
    pub fills: bool,
    /// The longest pause between two things that go wrong.
    pub pause_most: Duration,
}

impl Climate {
    /// What the seed brings.
    #[must_use]
    pub fn draw(random: &SimRandom) -> Climate {
        Climate {
            loses_power: random.one_in(2),
            reconfigures: random.one_in(2),
            divides: false,
            jumps: false,
            strikes: false,
            bounces: false,
            flushes: false,
            bears_again: false,
            lapses: false,
            removes: false,
            cleaves: false,
            halts: false,
            fills: false,
            pause_most: Duration::from_millis([600, 2000, 5000][random.below(3) as usize]),
        }
    }
}

impl Climate {
    /// The same, with what only a full seed has.
    pub(crate) fn widen(&mut self, random: &SimRandom) {
        self.divides = self.reconfigures && random.one_in(2);
        self.jumps = random.one_in(2);
        self.strikes = self.loses_power && random.one_in(2);
        self.bounces = random.one_in(3);
        self.flushes = random.one_in(2);
        self.bears_again = self.reconfigures && random.one_in(2);
        self.lapses = self.loses_power && random.one_in(2);
        self.removes = random.one_in(3);
        self.cleaves = self.divides && random.one_in(2);
        self.halts = self.reconfigures && random.one_in(2);
        self.fills = random.one_in(3);
    }
}

impl Climate {
    /// Whether there are schemes in it that begin by themselves.
    fn schemes(&self) -> bool {
        self.bears_again || self.lapses || self.removes || self.cleaves || self.halts
    }
}

impl World {
    /// Something goes wrong, or right again; when the next thing does.
    pub(crate) fn blow(&mut self) -> Nanos {
        if self.schemes() {
            return self.now().after(Duration::from_millis(50));
        }
        let count = self.machines.len() as u64;
        let nth = self.random.below(count) as usize;
        self.strikes |= self.climate.strikes && self.random.one_in(16);
        if self.climate.bounces && self.random.one_in(8) {
            match self.random.one_in(2) {
                true => self.divide_votes(),
                false if self.machines[nth].life.is_some() => self.bounce(nth, End::Killed),
                false => {}
            }
        }
        let climate = self.climate;
        if climate.schemes() && self.random.one_in(5) {
            self.scheme_something();
        }
        if climate.flushes && self.random.one_in(6) {
            self.machines[nth].flush_engine(&self.tasks);
        }
        if self.schemes() {
            return self.now().after(Duration::from_millis(50));
        }
        if self.climate.jumps && self.random.one_in(12) {
            self.jump(nth);
        }
        if self.climate.fills && self.random.one_in(12) {
            self.trouble_disk();
        }
        match self.random.below(20) {
            0..=3 => self.cut(),
            4..=6 => self.net.heal_cuts(),
            7..=10 => self.end(nth),
            11..=13 => self.start_any(),
            14 if self.climate.fills => {}
            14 => self.stall(nth),
            15 => {
                let pace = PACES[self.random.below(PACES.len() as u64) as usize];
                say!("a sync of node {nth} takes up to {pace:?}");
                self.machines[nth].plan.disk.set_pace(pace);
            }
            16 => {
                let other = self.random.below(count) as usize;
                self.net.break_between(Host(nth), Host(other));
            }
            17 => self.change_weather(),
            _ => self.reconfigure(nth),
        }
        let pause = self.random.below(self.climate.pause_most.as_micros() as u64);
        self.now().after(Duration::from_micros(pause))
    }

    /// A partition of one of the shapes.
    fn cut(&mut self) {
        let hosts: Vec<Host> = self.machines.iter().map(|machine| machine.host).collect();
        let count = hosts.len() as u64;
        let (one, other) =
            (hosts[self.random.below(count) as usize], hosts[self.random.below(count) as usize]);
        let half: Vec<bool> = hosts.iter().map(|_| self.random.one_in(2)).collect();
        let shape = self.random.below(5);
        say!("a partition of shape {shape} with {one:?}, {other:?}, {half:?}");
        for a in &hosts {
            for b in &hosts {
                let cuts = match shape {
                    // Halves; halves that one machine bridges; one alone; one that is not heard; one way.
                    0 => half[a.0] != half[b.0],
                    1 => half[a.0] != half[b.0] && *a != one && *b != one,
                    2 => (*a == one) != (*b == one),
                    3 => *a == one && *b != one,
                    _ => *a == one && *b == other,
                };
                if cuts && a != b {
                    self.net.cut(*a, *b);
                }
            }
        }
    }

    fn end(&mut self, nth: usize) {
        let how = if self.climate.loses_power && self.random.one_in(2) { End::Power } else { End::Killed };
        if self.climate.loses_power && self.random.one_in(8) {
            return self.black_out();
        }
        if self.machines[nth].life.is_some() {
            say!("node {nth} ends: {how:?}");
            self.power_losses += u64::from(how == End::Power);
            self.machines[nth].end(how, &self.tasks, &mut self.net);
        }
    }

    /// The power goes everywhere at once.
    pub(crate) fn black_out(&mut self) {
        say!("the power goes everywhere");
        for machine in &mut self.machines {
            machine.end(End::Power, &self.tasks, &mut self.net);
        }
        self.power_losses += 1;
    }

    fn start_any(&mut self) {
        let down: Vec<usize> =
            (0..self.machines.len()).filter(|n| self.machines[*n].life.is_none()).collect();
        if let Some(nth) = down.get(self.random.below(down.len() as u64) as usize) {
            say!("node {nth} starts");
            self.machines[*nth].start(&self.tasks, &mut self.net);
        }
    }

    fn stall(&mut self, nth: usize) {
        let is_stalled = self.net.is_stalled(Host(nth));
        say!("node {nth} {}", if is_stalled { "goes on" } else { "is stopped" });
        self.machines[nth].set_stalled(!is_stalled, &self.tasks, &mut self.net);
    }

    /// A disk is full, or hangs, or all disks work again.
    fn trouble_disk(&mut self) {
        let lasts = self.random.below(8);
        if lasts == 0 {
            say!("all disks work again");
        }
        if lasts < 6 {
            // Else several are in trouble at once.
            self.machines.iter().for_each(|machine| machine.plan.disk.mend());
        }
        if lasts == 0 {
            return;
        }
        let serving: Vec<usize> =
            (0..self.machines.len()).filter(|nth| self.machines[*nth].node().is_some()).collect();
        let Some(nth) = serving.get(self.random.below(serving.len() as u64) as usize) else { return };
        let disk = &self.machines[*nth].plan.disk;
        match self.random.below(5) {
            0 | 1 => {
                say!("the disk of node {nth} is full");
                disk.files.fill(true);
            }
            2 | 3 => {
                say!("the disk of node {nth} hangs");
                disk.hang(Some(Hang::Everything));
            }
            _ => {
                say!("the disk of node {nth} makes nothing durable");
                disk.hang(Some(Hang::Syncs));
            }
        }
    }

    /// Somebody sets a clock: by seconds or hours, forward or back.
    fn jump(&mut self, nth: usize) {
        let most = [1_000, 60_000, 36_000_000][self.random.below(3) as usize];
        let skew_ms = self.random.below(2 * most) as i64 - most as i64;
        say!("the clock on the wall of node {nth} is off by {skew_ms} ms");
        self.machines[nth].plan.clock.set_skew_ms(skew_ms);
    }

    fn change_weather(&mut self) {
        let random = &self.random;
        self.net.set_conditions(NetworkConditions {
            delay_max: Duration::from_millis([1, 5, 50, 200][random.below(4) as usize]),
            breaks_one_in: [0, 0, 5000, 500][random.below(4) as usize],
            unreachable_after: Duration::from_secs(5),
            ..NetworkConditions::default()
        });
    }

    fn reconfigure(&mut self, nth: usize) {
        if !self.climate.reconfigures {
            return;
        }
        let tables = &self.workload.tables;
        let table = tables[self.random.below(tables.len() as u64) as usize].clone();
        let replicas = 1 + self.random.below(self.machines.len() as u64) as usize;
        let shards = if self.climate.divides { 1 + self.random.below(4) as usize } else { 1 };
        say!("node {nth} is asked for {shards} shards and {replicas} replicas of {table}");
        let change = TableChange { shards: Some(wanted(shards, replicas)), ..TableChange::default() };
        let done = self.ask_node(nth, "reconfigure", move |node| {
            let id = node.catalog().table("test", &table).map(|table| table.config.id);
            let Some(id) = id else { return };
            let deadline = io::task::now() + ASSEMBLY;
            match node.change_table_while(id, &change, &|| io::task::now() < deadline) {
                Ok((_, after)) => tracing::info!("the table is now {:?}", after.shards),
                Err(error) => tracing::info!("the table is not reconfigured: {error}"),
            }
        });
        let process = self.machines[nth].life.as_ref().map(|life| life.process);
        self.reconfiguring.extend(process.map(|process| (process, done)));
    }

    /// Whether somebody reconfigures a table now.
    pub(crate) fn reconfigures(&mut self) -> bool {
        let lives = |process: Process| {
            self.machines.iter().any(|machine| machine.life.as_ref().is_some_and(|l| l.process == process))
        };
        self.reconfiguring.retain(|(process, done)| done.lock().is_none() && lives(*process));
        !self.reconfiguring.is_empty()
    }
}

/// So many shards and replicas, on any servers.
#[must_use]
pub fn wanted(shards: usize, replicas: usize) -> ShardsWanted {
    let tag = Text::from_static("default");
    ShardsWanted::Placed(Wanted {
        shards,
        replicas: [(tag.clone(), replicas)].into(),
        primary_tag: tag,
        nonvoting_tags: Vec::new(),
    })
}
