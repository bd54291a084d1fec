//! Checks whether this machine can run the requested nodes, before anything is started or written: a problem that shows
//! later has cost minutes, or distorts the figures.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{CLUSTER_PORT, DRIVER_PORT};

/// Memory of a node beside its caches: the program, its threads, new rows, messages. The goal is sixteen nodes in 2 GB.
const PROCESS_MB: u64 = 128;
/// The ports of consecutive nodes are consecutive: with more nodes, the last one's driver port would be the first one's
/// cluster port.
const NODES_MAX: usize = (CLUSTER_PORT - DRIVER_PORT) as usize;
/// Tolerance for shares that add up to a whole core.
const ROUNDING: f64 = 1e-9;

/// The requirements of a fleet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requirements<'a> {
    /// Nodes at the same time.
    pub(super) nodes: usize,
    /// Share of one core for each, if limited.
    pub(super) core_share: Option<f64>,
    /// The size of the cache of each node.
    pub(super) cache_mb: u64,
    /// Port offset of the first node.
    pub(super) port_offset: u16,
    /// The program, if it is not this one.
    pub(super) binary: Option<&'a Path>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MachineResources {
    pub(super) cores: usize,
    /// 0 if unknown.
    pub(super) memory_bytes: u64,
}

/// Why a machine cannot run a fleet, with the flag to change.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum UnmetRequirement {
    /// The program cannot be started.
    #[error("--target-binary {path}: {why}")]
    Program {
        path: PathBuf,
        /// Why it cannot be started.
        why: &'static str,
    },
    /// Two nodes would have the same port.
    #[error("{nodes} nodes on one machine are too many: there are ports for at most {most}")]
    Nodes {
        /// The requested number.
        nodes: usize,
        /// The largest possible number.
        most: usize,
    },
    /// A port would be above 65535.
    #[error(
        "--port-offset {offset}: node {nodes} of {nodes} would have the port {port}; the last port is 65535"
    )]
    Ports {
        offset: u16,
        /// The requested number.
        nodes: usize,
        /// The cluster port of the last node.
        port: usize,
    },
    /// Nodes would compete for cores instead of being limited by their shares, and the client would compete with them.
    #[error(
        "--core-share {share}: {nodes} nodes would have {all:.2} cores together, and this machine has {cores}; take \
         fewer --nodes, or at most {most:.3} for each, or measure processor time alone, with --no-quota"
    )]
    Shares {
        share: f64,
        /// The requested number of nodes.
        nodes: usize,
        /// The total of all nodes.
        all: f64,
        /// The cores of the machine.
        cores: usize,
        /// The largest possible share.
        most: f64,
    },
    /// The system would kill some of them, or swap.
    #[error(
        "{nodes} nodes take up to {all_mb} MB of memory, {cache_mb} each for caches (--cache-size) and about {process_mb} \
         for the process, and this machine has {has_mb}: take fewer --nodes or smaller caches"
    )]
    Memory {
        /// The requested number.
        nodes: usize,
        /// The size of the cache of each node.
        cache_mb: u64,
        /// Other memory of each.
        process_mb: u64,
        /// The total.
        all_mb: u64,
        /// The memory of the machine.
        has_mb: u64,
    },
}

impl Requirements<'_> {
    /// Fails with the first requirement that `machine` does not meet.
    pub(super) fn fit(&self, machine: MachineResources) -> Result<(), UnmetRequirement> {
        if let Some(binary) = self.binary {
            is_program(binary)?;
        }
        self.have_ports()?;
        self.have_shares(machine.cores)?;
        self.have_memory(machine.memory_bytes)
    }

    fn have_ports(&self) -> Result<(), UnmetRequirement> {
        let (nodes, offset) = (self.nodes, self.port_offset);
        if nodes > NODES_MAX {
            return Err(UnmetRequirement::Nodes { nodes, most: NODES_MAX });
        }
        let port = usize::from(CLUSTER_PORT) + usize::from(offset) + nodes.saturating_sub(1);
        if port > usize::from(u16::MAX) {
            return Err(UnmetRequirement::Ports { offset, nodes, port });
        }
        Ok(())
    }

    fn have_shares(&self, cores: usize) -> Result<(), UnmetRequirement> {
        let Some(share) = self.core_share else { return Ok(()) };
        let all = share * self.nodes as f64;
        match all > cores as f64 + ROUNDING {
            true => Err(UnmetRequirement::Shares {
                share,
                nodes: self.nodes,
                all,
                cores,
                most: cores as f64 / self.nodes as f64,
            }),
            false => Ok(()),
        }
    }

    fn have_memory(&self, memory_bytes: u64) -> Result<(), UnmetRequirement> {
        let all_mb = (self.nodes as u64).saturating_mul(self.cache_mb.saturating_add(PROCESS_MB));
        let has_mb = memory_bytes / (1 << 20);
        match memory_bytes > 0 && all_mb > has_mb {
            true => Err(UnmetRequirement::Memory {
                nodes: self.nodes,
                cache_mb: self.cache_mb,
                process_mb: PROCESS_MB,
                all_mb,
                has_mb,
            }),
            false => Ok(()),
        }
    }
}

/// Checks the program. A name without a slash is looked up in `PATH`.
fn is_program(binary: &Path) -> Result<(), UnmetRequirement> {
    let unfit = |why| Err(UnmetRequirement::Program { path: binary.to_owned(), why });
    let is_executable = |path: &Path| {
        path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    if binary.parent() == Some(Path::new("")) {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        return match std::env::split_paths(&folders).any(|folder| is_executable(&folder.join(binary))) {
            true => Ok(()),
            false => unfit("no program of that name is in PATH"),
        };
    }
    match binary.metadata() {
        Err(_) => unfit("there is no such file"),
        Ok(_) if !is_executable(binary) => unfit("that is not an executable program"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: MachineResources = MachineResources { cores: 2, memory_bytes: 24 << 30 };
    const SIXTEEN: Requirements<'_> =
        Requirements { nodes: 16, core_share: Some(0.05), cache_mb: 512, port_offset: 400, binary: None };

    #[track_caller]
    fn refused(needs: Requirements<'_>, words: &str) {
        let why = needs.fit(MACHINE).expect_err("it does not fit").to_string();
        assert!(why.contains(words), "{why}");
    }

    #[test]
    fn the_published_sweep_fits_on_two_cores() {
        assert_eq!(SIXTEEN.fit(MACHINE), Ok(()));
        let all = Requirements { nodes: 20, core_share: Some(0.1), ..SIXTEEN };
        assert_eq!(all.fit(MACHINE), Ok(()), "twenty tenths are two");
    }

    #[test]
    fn shares_that_the_machine_does_not_have_are_refused() {
        let words =
            "--core-share 99: 2 nodes would have 198.00 cores together, and this machine has 2; take fewer";
        refused(Requirements { nodes: 2, core_share: Some(99.0), ..SIXTEEN }, words);
        refused(Requirements { core_share: Some(0.2), ..SIXTEEN }, "3.20 cores");
        assert_eq!(Requirements { core_share: None, ..SIXTEEN }.fit(MACHINE), Ok(()));
    }

    #[test]
    fn memory_that_the_machine_does_not_have_is_refused() {
        let words =
            "100 nodes take up to 64000 MB of memory, 512 each for caches (--cache-size) and about 128";
        refused(Requirements { nodes: 100, core_share: None, ..SIXTEEN }, words);
        refused(Requirements { nodes: 1, cache_mb: u64::MAX, ..SIXTEEN }, "smaller caches");
        let unknown = MachineResources { memory_bytes: 0, ..MACHINE };
        assert_eq!(SIXTEEN.fit(unknown), Ok(()));
    }

    #[test]
    fn ports_that_do_not_exist_are_refused() {
        let words = "--port-offset 60000: node 2 of 2 would have the port 89016; the last port is 65535";
        refused(Requirements { nodes: 2, port_offset: 60_000, ..SIXTEEN }, words);
        let last = Requirements { nodes: 2, port_offset: u16::MAX - CLUSTER_PORT - 1, ..SIXTEEN };
        assert_eq!(last.fit(MACHINE), Ok(()));
        refused(Requirements { nodes: 3, ..last }, "65536");
        refused(Requirements { nodes: 1001, core_share: None, ..SIXTEEN }, "at most 1000");
    }

    #[test]
    fn a_path_that_is_not_a_program_is_refused() {
        let of = |path: &'static str| Requirements { binary: Some(Path::new(path)), ..SIXTEEN };
        refused(of("/nope"), "--target-binary /nope: there is no such file");
        refused(of("/etc"), "--target-binary /etc: that is not an executable program");
        refused(of("/proc/version"), "that is not an executable program");
        refused(of("no-program-has-this-name"), "in PATH");
        assert_eq!((of("/bin/false").fit(MACHINE), of("sh").fit(MACHINE)), (Ok(()), Ok(())));
    }
}
