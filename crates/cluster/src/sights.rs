//! Which servers see each other. One that is not connected here may live all the same: nobody is given up whom somebody
//! sees who is connected (decision 0015).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::answer::decode_servers;
use crate::node::Core;
use crate::request::Request;
use crate::{AdminError, Catalog, ServerId, words};

/// How long a server may take to say whom it sees.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whom each server sees that said so: this one, and those that are connected to it and answered.
pub(crate) struct Sights {
    own: ServerId,
    seen: BTreeMap<ServerId, BTreeSet<ServerId>>,
    /// Those that are connected and have not answered.
    silent: BTreeSet<ServerId>,
}

impl Sights {
    /// Everybody who lives, as far as these know.
    fn living(&self) -> BTreeSet<ServerId> {
        self.seen.iter().flat_map(|(server, sees)| sees.iter().chain([server])).copied().collect()
    }

    /// Those of the others that see a server.
    fn witnesses(&self, of: ServerId) -> BTreeSet<ServerId> {
        let others = self.seen.iter().filter(|(server, sees)| **server != self.own && sees.contains(&of));
        others.map(|(server, _)| *server).collect()
    }

    /// Whether another server sees this one.
    pub(crate) fn is_seen(&self, server: ServerId) -> bool {
        !self.witnesses(server).is_empty()
    }

    /// Fails if somebody lives who is not seen from here, or may: this server is cut off then, and cannot tell who is
    /// lost.
    pub(crate) fn refuse_hidden(&self, catalog: &Catalog) -> Result<(), AdminError> {
        let sees = &self.seen[&self.own];
        let is_hidden =
            |server: &ServerId| *server != self.own && !sees.contains(server) && !catalog.is_removed(*server);
        let hidden: BTreeSet<ServerId> = self.living().into_iter().filter(is_hidden).collect();
        if !hidden.is_empty() {
            let by = hidden.iter().flat_map(|server| self.witnesses(*server)).collect();
            let (servers, by) = (words::named(catalog, &hidden), words::named(catalog, &by));
            return Err(AdminError::Hidden { servers, by });
        }
        self.refuse_silent(catalog)
    }

    /// Fails if another server sees this one, or may.
    pub(crate) fn refuse_seen(&self, catalog: &Catalog, server: ServerId) -> Result<(), AdminError> {
        let witnesses = self.witnesses(server);
        if witnesses.is_empty() {
            return self.refuse_silent(catalog);
        }
        let (server, by) = (words::named(catalog, &[server].into()), words::named(catalog, &witnesses));
        Err(AdminError::ServerSeen { server, by })
    }

    fn refuse_silent(&self, catalog: &Catalog) -> Result<(), AdminError> {
        match self.silent.is_empty() {
            true => Ok(()),
            // It was only slow perhaps, and sees nobody whom others do not see.
            false => Err(AdminError::Silent { servers: words::named(catalog, &self.silent) }),
        }
    }

    /// Servers that do not see each other although both live: the one that does not see, and whom.
    pub(crate) fn unseen(&self) -> Vec<(ServerId, ServerId)> {
        let living = self.living();
        let unseen = |(server, sees): (&ServerId, &BTreeSet<ServerId>)| {
            let others = living.iter().filter(|other| *other != server && !sees.contains(other));
            others.map(|other| (*server, *other)).collect::<Vec<_>>()
        };
        self.seen.iter().flat_map(unseen).collect()
    }
}

impl Core {
    /// The other servers of the catalog that this one is connected to.
    #[must_use]
    pub fn sees(&self) -> Vec<ServerId> {
        let catalog = self.catalog();
        let others = catalog.servers().into_iter().map(|server| server.id);
        others.filter(|id| *id != self.identity.server && self.is_connected(*id)).collect()
    }

    /// Servers that do not see each other although this one, or one that it sees, sees both: the one
    /// that does not see, and whom. Asks every server that is connected.
    #[must_use]
    pub fn unseen(&self) -> Vec<(ServerId, ServerId)> {
        self.sights().unseen()
    }

    /// Asks every server that is connected whom it sees, all at the same time.
    pub(crate) fn sights(&self) -> Sights {
        self.sights_and(None).0
    }

    /// The same, and what those servers answer to another request, which is asked at the same time.
    pub(crate) fn sights_and(&self, request: Option<Bytes>) -> (Sights, Vec<(ServerId, Option<Bytes>)>) {
        let (own, others) = (self.identity.server, self.sees());
        let kinds = [Some(Request::Sees.encode()), request];
        let to_all = |request: Bytes| others.iter().map(move |server| (*server, request.clone()));
        let requests = kinds.into_iter().flatten().flat_map(to_all).collect();
        let mut answers = self.ask_all(requests, PATIENCE);
        let also = answers.split_off(others.len());
        let also = others.iter().copied().zip(also).collect();
        let said = others.iter().zip(answers).filter_map(|(server, answer)| {
            let sees = decode_servers(&answer?)?;
            Some((*server, sees.into_iter().collect()))
        });
        let mut seen: BTreeMap<ServerId, BTreeSet<ServerId>> = said.collect();
        let still = self.sees();
        let silent = still.into_iter().filter(|id| others.contains(id) && !seen.contains_key(id)).collect();
        // The catalog here may not know all of them yet.
        let named: BTreeSet<ServerId> = seen.values().flatten().chain(&others).copied().collect();
        seen.insert(own, named.into_iter().filter(|id| *id != own && self.is_connected(*id)).collect());
        (Sights { own, seen, silent }, also)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::server;

    /// What 1 knows when it and the others see these.
    fn sights(seen: &[(u64, &[u64])]) -> Sights {
        let sees = |sees: &[u64]| sees.iter().map(|n| server(*n)).collect::<BTreeSet<_>>();
        let seen: BTreeMap<_, _> = seen.iter().map(|(by, those)| (server(*by), sees(those))).collect();
        let silent = seen[&server(1)].iter().filter(|other| !seen.contains_key(other)).copied().collect();
        Sights { own: server(1), seen, silent }
    }

    #[test]
    fn who_is_seen_by_another_is_hidden_and_who_is_seen_by_nobody_is_not() {
        let catalog = Catalog::default();
        assert!(sights(&[(1, &[2]), (2, &[1])]).refuse_hidden(&catalog).is_ok());
        let silent = sights(&[(1, &[2, 3]), (2, &[1, 3])]).refuse_hidden(&catalog);
        assert!(matches!(silent, Err(AdminError::Silent { .. })), "3 may see more: {silent:?}");
        let refused = sights(&[(1, &[2, 3]), (2, &[1, 3, 5]), (3, &[1, 2, 4])]).refuse_hidden(&catalog);
        let Err(AdminError::Hidden { servers, by }) = refused else { panic!("{refused:?}") };
        assert_eq!(servers, format!("{}, {}", server(4), server(5)));
        assert_eq!(by, format!("{}, {}", server(2), server(3)));
    }

    #[test]
    fn a_server_that_another_sees_is_named_with_those_who_do() {
        let silent = sights(&[(1, &[2, 3]), (2, &[1])]).refuse_seen(&Catalog::default(), server(5));
        assert!(matches!(silent, Err(AdminError::Silent { .. })), "3 may see it: {silent:?}");
        let sights = sights(&[(1, &[2, 3]), (2, &[1, 4]), (3, &[1, 4])]);
        assert!(sights.refuse_seen(&Catalog::default(), server(5)).is_ok());
        let refused = sights.refuse_seen(&Catalog::default(), server(4)).unwrap_err().to_string();
        assert!(refused.contains(&format!("{}, {}", server(2), server(3))), "{refused}");
        let unseen = [(1, 4), (2, 3), (3, 2)].map(|(by, whom)| (server(by), server(whom)));
        assert_eq!(sights.unseen(), unseen);
    }
}
