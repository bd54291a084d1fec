//! Resolves host names. Every connection resolves its host here, so that a private address is never reached: not
//! through a host name, not through a redirect, not through a literal address.

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

/// The system's resolver without the addresses that `may_reach` rejects.
pub(super) struct FilteringResolver {
    system: DefaultResolver,
    may_reach: fn(IpAddr) -> bool,
}

impl FilteringResolver {
    /// Accepts the addresses that `reach` allows.
    pub(super) fn new(reach: HttpReach) -> FilteringResolver {
        match reach {
            HttpReach::Public => FilteringResolver::to(is_public),
            HttpReach::Everything => FilteringResolver::to(|_| true),
        }
    }

    /// Accepts the addresses for which `may_reach` returns true.
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
