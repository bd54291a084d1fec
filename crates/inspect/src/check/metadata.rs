//! The files that name a data directory and its server.

use std::io::ErrorKind;

use cluster::Identity;
use io::real::RealFiles;

use super::CheckError;
use crate::catalog::Tables;
use crate::folder::Folder;
use crate::report::{DamageKind, Report};

/// Reads the identity and the name of the server. `None` if there is no readable identity.
pub(super) fn check(folder: &Folder, report: &mut Report) -> Result<Option<Identity>, CheckError> {
    check_name(folder, report)?;
    match Identity::load(&RealFiles, folder.path()) {
        Ok(Some(identity)) => Ok(Some(identity)),
        Ok(None) => {
            let has_replicas = log::file::has_replicas(&RealFiles, &folder.log())?;
            if has_replicas {
                report.add(DamageKind::Metadata, None, "the file identity.json is missing");
            }
            Ok(None)
        }
        Err(cause) => {
            report.add(DamageKind::Metadata, None, format!("identity.json: {cause}"));
            Ok(None)
        }
    }
}

fn check_name(folder: &Folder, report: &mut Report) -> Result<(), CheckError> {
    match std::fs::read(folder.path().join("server_name")) {
        Ok(name) => match String::from_utf8(name) {
            Ok(name) if !name.trim().is_empty() && !name.contains('\0') => Ok(()),
            _ => {
                report.add(DamageKind::Metadata, None, "the file server_name has no name");
                Ok(())
            }
        },
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

/// Compares the identity with the servers in the catalog.
pub(super) fn check_identity(identity: Option<Identity>, tables: &Tables, report: &mut Report) {
    let Some(Identity { server, .. }) = identity else { return };
    if !tables.catalog.servers.is_empty() && !tables.catalog.has_server(server) {
        let what = format!("identity.json names the server {server}, which the catalog does not have");
        report.add(DamageKind::Metadata, None, what);
    }
}
