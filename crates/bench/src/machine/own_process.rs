//! The resources that this program uses.

use rustix::time::{ClockId, clock_gettime};

use super::process;

/// Processor time of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnCpu {
    /// The exact total.
    pub seconds: f64,
    /// The part in user mode, with a resolution of 10 ms.
    pub user_seconds: f64,
    /// The part in the kernel, with a resolution of 10 ms.
    pub system_seconds: f64,
    /// Time that threads were ready to run and had no core, summed over living threads; `None` if the kernel does not
    /// report it.
    pub waited_seconds: Option<f64>,
}

/// Processor time of this process so far.
pub fn cpu() -> OwnCpu {
    let split = process::cpu(std::process::id()).unwrap_or_default();
    OwnCpu {
        seconds: clock_seconds(ClockId::ProcessCPUTime),
        user_seconds: split.user_seconds,
        system_seconds: split.system_seconds,
        waited_seconds: waited_seconds(),
    }
}

/// The second number of each `/proc/self/task/TID/schedstat`, in nanoseconds.
/// Source: the kernel's Documentation/scheduler/sched-stats.rst.
fn waited_seconds() -> Option<f64> {
    let waited = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let each: Vec<f64> = tasks.flatten().filter_map(waited).collect();
    (!each.is_empty()).then(|| each.iter().sum::<f64>() / 1e9)
}

/// Processor time of the calling thread so far.
pub fn thread_cpu_seconds() -> f64 {
    clock_seconds(ClockId::ThreadCPUTime)
}

/// Highest resident size of this process.
pub fn peak_memory_bytes() -> u64 {
    process::memory(std::process::id()).and_then(|m| m.peak_bytes).unwrap_or(0)
}

fn clock_seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
