//! The program: parses the command line and runs `server`, `bench`, `migrate` or `inspect`.

#![forbid(unsafe_code)]

mod command_line;
mod tools;

use std::process::ExitCode;

use command_line::Request;
use io::memory::Metered;
use tikv_jemallocator::Jemalloc;

/// jemalloc suits many small allocations on many threads and returns freed memory to the system. `Metered` counts
/// allocations, so that a query that holds too much memory can be stopped.
#[global_allocator]
static ALLOCATOR: Metered<Jemalloc> = Metered(Jemalloc);

fn main() -> ExitCode {
    let request = match command_line::read(std::env::args_os()) {
        Ok(request) => request,
        Err(error) => return error.show(),
    };
    match run(request) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, omitting causes that its message already includes.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |text, cause| {
        match text.contains(&cause) {
            true => text,
            false => format!("{text}: {cause}"),
        }
    })
}

fn run(request: Request) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "failpoints")]
    io::arm_failpoint()?;
    match request {
        Request::Version => println!("rekindle {} ({})", env!("CARGO_PKG_VERSION"), server::PLATFORM),
        Request::Create(config) => server::create(&config)?,
        Request::Serve(config, opening) => server::serve(&config, opening, std::env::args().collect())?,
        Request::Proxy(config) => server::serve_proxy(config, std::env::args().collect())?,
        Request::Bench(args) => return bench::cli::run(args),
        Request::Explain(args) => return bench::cli::explain(&args),
        Request::Migrate(args) => return Ok(migrate::cli::run(args)?),
        Request::Check(args) => return Ok(inspect::cli::run_check(&args)),
        Request::Salvage(args) => return Ok(inspect::cli::run_salvage(&args)),
        Request::Tool(tool, words) => return Ok(tools::run_tool(&tool, &words)?),
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
