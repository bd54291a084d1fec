//! The program: reads the command line and hands over to `server` or `bench`.

#![forbid(unsafe_code)]

mod command_line;
mod tools;

use std::process::ExitCode;

use command_line::Request;
use io::memory::Metered;
use tikv_jemallocator::Jemalloc;

/// Many small allocations on many threads, given back to the system when they are gone, and counted
/// so that a query can be told that it holds too much.
#[global_allocator]
static ALLOCATOR: Metered<Jemalloc> = Metered(Jemalloc);

fn main() -> ExitCode {
    let request = match command_line::read(std::env::args_os()) {
        Ok(request) => request,
        Err(refusal) => return refusal.show(),
    };
    match run(request) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, of which many are in the words of what they caused already.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |text, cause| {
        match text.contains(&cause) {
            true => text,
            false => format!("{text}: {cause}"),
        }
    })
}

fn run(request: Request) -> anyhow::Result<ExitCode> {
    match request {
        Request::Version => println!("rekindle {} ({})", env!("CARGO_PKG_VERSION"), server::PLATFORM),
        Request::Create(config) => server::create(&config)?,
        Request::Serve(config, opening) => server::serve(&config, opening, std::env::args().collect())?,
        Request::Proxy(config) => server::serve_proxy(config, std::env::args().collect())?,
        Request::Bench(args) => return bench::cli::run(args),
        Request::Explain(args) => return bench::cli::explain(&args),
        Request::Tool(tool, words) => return Err(tools::become_tool(&tool, &words).into()),
        Request::JsSandbox => return js_sandbox(),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "js")]
fn js_sandbox() -> anyhow::Result<ExitCode> {
    Ok(server::run_sandbox())
}

#[cfg(not(feature = "js"))]
fn js_sandbox() -> anyhow::Result<ExitCode> {
    anyhow::bail!("JavaScript is not built into this program")
}
