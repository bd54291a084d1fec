//! The servers of a run: their addresses, the login, their versions, and how they are watched.

use anyhow::{Context, bail};
use client::admin::Admin;
use client::handshake::Login;
use client::terms;
use serde_json::json;

use crate::machine::process;
use crate::machine::watch::{Watched, is_local};
use crate::result::Versions;

/// Version of the benchmark.
pub const BENCH_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The servers as the user named them.
#[derive(Clone, Debug)]
pub struct SutRequest {
    /// Host and port of each.
    pub addresses: Vec<String>,
    pub login: Login,
    /// Process ids, in the order of the addresses; missing ones are looked up.
    pub pids: Vec<u32>,
    /// Metrics pages, in the order of the addresses; missing ones are guessed.
    pub metrics_urls: Vec<String>,
}

/// The servers of a run.
#[derive(Clone, Debug)]
pub struct SystemUnderTest {
    /// Host and port of each.
    pub addresses: Vec<String>,
    pub login: Login,
    /// How each is watched.
    pub watched: Vec<Watched>,
    /// Versions of client and server.
    pub versions: Versions,
    /// Number of servers in the cluster.
    pub servers: usize,
    /// Whether all run on this machine.
    pub is_local: bool,
}

impl SystemUnderTest {
    /// Connects to the first server and collects the facts about all of them.
    pub fn open(request: SutRequest) -> anyhow::Result<(SystemUnderTest, Admin)> {
        if let Some(pid) = request.pids.iter().find(|pid| process::cpu(**pid).is_none()) {
            bail!("--server-pid {pid}: there is no such process on this machine");
        }
        let first = request.addresses.first().context("no server given")?;
        let mut admin = Admin::connect(first, &request.login)?;
        let (server_name, server_id) = admin.server_info().unwrap_or_default();
        let versions = Versions {
            bench: BENCH_VERSION.to_owned(),
            server: Some(admin.server_version.clone()),
            server_name,
            server_id,
        };
        let watched = request.addresses.iter().enumerate().map(|(place, address)| {
            let url = request.metrics_urls.get(place).cloned();
            Watched::find(address, request.pids.get(place).copied(), url)
        });
        let watched = watched.collect();
        let counted = admin.ask(&terms::count(terms::table("rethinkdb", "server_status")));
        let counted = counted.unwrap_or(json!(0)).as_u64().unwrap_or(0) as usize;
        let host_of = |address: &String| address.rsplit_once(':').map(|(h, _)| h.to_owned());
        let is_local = request.addresses.iter().all(|a| host_of(a).is_some_and(|host| is_local(&host)));
        let sut = SystemUnderTest {
            servers: counted.max(request.addresses.len()),
            addresses: request.addresses,
            login: request.login,
            watched,
            versions,
            is_local,
        };
        Ok((sut, admin))
    }
}
