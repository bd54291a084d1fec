//! Names become addresses here and nowhere else, so that what is refused here is never reached:
//! not by a name that points inside, not by a redirection, not by an address written out.

use std::fmt;
use std::net::IpAddr;

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::address::is_public;
use super::failure::PrivateAddress;
use crate::config::HttpReach;

/// The system's resolver, without the addresses that may not be reached.
pub(super) struct FilteringResolver {
    system: DefaultResolver,
    may_reach: fn(IpAddr) -> bool,
}

impl FilteringResolver {
    /// The addresses that `reach` allows.
    pub(super) fn new(reach: HttpReach) -> FilteringResolver {
        match reach {
            HttpReach::Public => FilteringResolver::to(is_public),
            HttpReach::Everything => FilteringResolver::to(|_| true),
        }
    }

    /// The addresses for which `may_reach` says so.
    pub(super) fn to(may_reach: fn(IpAddr) -> bool) -> FilteringResolver {
        FilteringResolver { system: DefaultResolver::default(), may_reach }
    }
}

impl fmt::Debug for FilteringResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilteringResolver").finish_non_exhaustive()
    }
}

impl Resolver for FilteringResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.system.resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in found.iter().filter(|address| (self.may_reach)(address.ip())) {
            allowed.push(*address);
        }
        if allowed.is_empty() { Err(Error::Other(Box::new(PrivateAddress))) } else { Ok(allowed) }
    }
}
