//! The hello: how a server introduces itself before a link opens.

use std::collections::BTreeMap;

use datum::{Datum, json};
use uuid::Uuid;

use super::address_book::{TEXT_BYTES_MAX, number_of, object, text_of, texts, texts_of, uuid_of};
use super::contract::PeerInfo;
use super::frame::Damage;
use crate::ServerId;

const LIST_MAX: usize = 64;

/// The fields of a hello (docs/formats/link.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) cluster: Option<Uuid>,
    pub(super) server: ServerId,
    pub(super) incarnation: u64,
    pub(super) started_ms: u64,
    pub(super) name: String,
    pub(super) tags: Vec<String>,
    pub(super) addresses: Vec<String>,
    pub(super) port: u16,
    pub(super) is_proxy: bool,
    pub(super) program: String,
    pub(super) heartbeat_ms: u64,
    /// Only of a server that was dialed: its own address at which the connection came in, as it sees it.
    pub(super) reached_at: Option<String>,
    /// The addresses that were given with `--canonical-address`.
    pub(super) canonical: Vec<String>,
    /// Only of a server without a cluster: the servers that it would make one with.
    pub(super) expects: Option<Vec<ServerId>>,
    /// Only with `expects`: the servers it has found, by address of `--join`, `host:port` as given; without loopback
    /// addresses.
    pub(super) found: Option<BTreeMap<String, ServerId>>,
}

impl Hello {
    pub(super) fn to_text(&self) -> String {
        let cluster = self.cluster.map_or(Datum::Null, |cluster| cluster.to_string().into());
        let expects = self.expects.as_ref().map(|servers| {
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            ("expects", texts(&servers))
        });
        let found = self.found.as_ref().map(|found| {
            let pairs = found.iter().map(|(address, server)| [address.clone(), server.to_string()]);
            ("found", Datum::Array(pairs.map(|pair| texts(&pair)).collect()))
        });
        let proxy = self.is_proxy.then_some(("proxy", Datum::Bool(true)));
        let reached_at = self.reached_at.as_ref().map(|at| ("reached_at", at.as_str().into()));
        let fields = [
            ("cluster", cluster),
            ("server", self.server.to_string().into()),
            ("incarnation", format!("{:016x}", self.incarnation).into()),
            ("started_ms", Datum::Number(self.started_ms as f64)),
            ("name", self.name.as_str().into()),
            ("tags", texts(&self.tags)),
            ("addresses", texts(&self.addresses)),
            ("canonical", texts(&self.canonical)),
            ("port", Datum::Number(f64::from(self.port))),
            ("program", self.program.as_str().into()),
            ("heartbeat_ms", Datum::Number(self.heartbeat_ms as f64)),
            ("capabilities", Datum::empty_array()),
        ];
        object(fields.into_iter().chain(proxy).chain(reached_at).chain(expects).chain(found)).to_json_string()
    }

    pub(super) fn parse(text: &[u8]) -> Result<Hello, Damage> {
        let Ok(Datum::Object(fields)) = json::parse(text) else { return Err(Damage::Hello("JSON object")) };
        let missing = Damage::Hello;
        let incarnation = text_of(&fields, "incarnation").ok_or(missing("incarnation"))?;
        let port = number_of(&fields, "port").ok_or(missing("port"))?;
        Ok(Hello {
            cluster: match fields.get("cluster") {
                Some(Datum::Null) => None,
                _ => Some(uuid_of(&fields, "cluster").ok_or(missing("cluster"))?),
            },
            server: ServerId(uuid_of(&fields, "server").ok_or(missing("server"))?),
            incarnation: u64::from_str_radix(&incarnation, 16).map_err(|_| missing("incarnation"))?,
            started_ms: number_of(&fields, "started_ms").ok_or(missing("started_ms"))?,
            name: text_of(&fields, "name").ok_or(missing("name"))?,
            tags: texts_of(&fields, "tags", LIST_MAX).ok_or(missing("tags"))?,
            addresses: texts_of(&fields, "addresses", LIST_MAX).ok_or(missing("addresses"))?,
            port: u16::try_from(port).map_err(|_| missing("port"))?,
            is_proxy: fields.get("proxy") == Some(Datum::Bool(true)),
            program: text_of(&fields, "program").ok_or(missing("program"))?,
            heartbeat_ms: number_of(&fields, "heartbeat_ms").ok_or(missing("heartbeat_ms"))?,
            reached_at: text_of(&fields, "reached_at"),
            canonical: texts_of(&fields, "canonical", LIST_MAX).unwrap_or_default(),
            expects: match fields.get("expects") {
                None => None,
                Some(_) => Some(servers_of(&fields, "expects").ok_or(missing("expects"))?),
            },
            found: match fields.get("found") {
                None => None,
                Some(_) => Some(found_of(&fields).ok_or(missing("found"))?),
            },
        })
    }

    /// The public description of this server, reached at `at`.
    pub(super) fn info(&self, at: &str) -> PeerInfo {
        PeerInfo {
            server: self.server,
            incarnation: self.incarnation,
            name: self.name.clone(),
            tags: self.tags.clone(),
            addresses: self.addresses.clone(),
            program: self.program.clone(),
            at: at.to_owned(),
        }
    }
}

fn servers_of(fields: &datum::Object, name: &str) -> Option<Vec<ServerId>> {
    let texts = texts_of(fields, name, LIST_MAX)?;
    texts.iter().map(|text| Uuid::parse_str(text).ok().map(ServerId)).collect()
}

fn found_of(fields: &datum::Object) -> Option<BTreeMap<String, ServerId>> {
    let Datum::Array(list) = fields.get("found")? else { return None };
    let pair = |item: &Datum| match item {
        Datum::Array(pair) => {
            let [Datum::String(address), Datum::String(server)] = &**pair else { return None };
            let server = Uuid::parse_str(server).ok().map(ServerId)?;
            (address.len() <= TEXT_BYTES_MAX).then(|| (address.to_string(), server))
        }
        _ => None,
    };
    list.iter().take(LIST_MAX).map(pair).collect()
}
