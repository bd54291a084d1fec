//! Being told to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Completes at the first SIGTERM or SIGINT. A second one ends the process at once: what was
/// acknowledged is in the log, only the tidy end is lost.
pub async fn asked() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = either(&mut terminate, &mut interrupt).await;
    tracing::info!("Server got {name}; shutting down...");
    tokio::spawn(async move {
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::warn!("Server got {name} again; ending at once");
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
