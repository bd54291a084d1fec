//! The signals that stop the process.

use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Some tools send a signal both to the process and to its group; the second one within this time is the same request.
const DUPLICATE_SIGNAL_WINDOW: Duration = Duration::from_secs(1);

/// Completes at the first SIGTERM or SIGINT. A later one ends the process at once: acknowledged writes are in the log,
/// only the orderly shutdown is lost.
pub async fn requested() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = either(&mut terminate, &mut interrupt).await;
    tracing::info!("Server got {name}; shutting down...");
    tokio::spawn(async move {
        let first = Instant::now();
        let mut name = either(&mut terminate, &mut interrupt).await;
        while first.elapsed() < DUPLICATE_SIGNAL_WINDOW {
            name = either(&mut terminate, &mut interrupt).await;
        }
        tracing::warn!("Server got {name} again; exiting immediately");
        std::process::exit(1);
    });
    Ok(())
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
