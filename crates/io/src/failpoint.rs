//! Failpoints: named places in the code at which a test ends the process, as if it were killed. Between any two of them
//! the state on disk is another one. They are compiled in only with the feature `failpoints`, which no released program has.

/// Whether failpoints are compiled in. Sizes are smaller then, so that a short run passes all of them.
pub const FAILPOINTS_ENABLED: bool = cfg!(feature = "failpoints");

/// A place at which a test may end the process. The name is unique, and begins with that of the crate or of its part.
#[inline(always)]
pub fn failpoint(name: &'static str) {
    #[cfg(feature = "failpoints")]
    fail::fail_point!(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

#[cfg(feature = "failpoints")]
pub use armed::{ArmError, arm_failpoint};

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The variable of the environment with the name of a failpoint, a colon and a number.
    const VARIABLE: &str = "REKINDLE_FAILPOINT";

    /// The variable names no failpoint.
    #[derive(Debug, thiserror::Error)]
    #[error("{VARIABLE} is {text:?}, not the name of a failpoint, a colon and a number above 0")]
    pub struct ArmError {
        text: String,
    }

    /// Ends the process, as `kill -9` does, when it passes the failpoint of `REKINDLE_FAILPOINT` for as many times as the
    /// variable says, such as `log.append:3`. Without the variable, it does nothing.
    pub fn arm_failpoint() -> Result<(), ArmError> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
        let parsed = text.split_once(':').and_then(|(name, count)| {
            let count = count.parse::<u64>().ok().filter(|count| *count > 0)?;
            Some((name, count))
        });
        let Some((name, count)) = parsed else { return Err(ArmError { text }) };
        let passed = AtomicU64::new(0);
        let pass = move || {
            if passed.fetch_add(1, Ordering::Relaxed) + 1 == count {
                end_process();
            }
        };
        fail::cfg_callback(name, pass).map_err(|_| ArmError { text: text.clone() })
    }

    fn end_process() {
        let own = rustix::process::getpid();
        // A process may always end itself.
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    }
}
