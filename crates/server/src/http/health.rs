//! Whether the node is ready to serve, and if not, why.

use datum::Datum;
use parking_lot::RwLock;

/// The stage of the node's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStage {
    /// It is opening its data; the text says which step.
    Starting(&'static str),
    /// It is serving.
    Ready {
        /// The server's uuid.
        id: String,
        /// The server's name.
        name: String,
    },
    /// It finishes running queries and exits.
    ShuttingDown,
}

/// The current stage of the node, shared with the HTTP pages.
pub struct Health(RwLock<NodeStage>);

impl Health {
    /// A node that is starting.
    #[must_use]
    pub fn new() -> Health {
        Health(RwLock::new(NodeStage::Starting("opening the data directory")))
    }

    /// Sets the stage.
    pub fn enter(&self, stage: NodeStage) {
        *self.0.write() = stage;
    }

    /// Whether the node is ready, and the health page.
    pub fn to_json(&self) -> (bool, String) {
        let stage = self.0.read().clone();
        let quoted = |text: &str| Datum::from(text).to_json_string();
        let version = quoted(env!("CARGO_PKG_VERSION"));
        match stage {
            NodeStage::Starting(doing) => (
                false,
                format!("{{\"status\":\"starting\",\"reason\":{},\"version\":{version}}}\n", quoted(doing)),
            ),
            NodeStage::Ready { id, name } => {
                let (id, name) = (quoted(&id), quoted(&name));
                (
                    true,
                    format!("{{\"status\":\"ready\",\"id\":{id},\"name\":{name},\"version\":{version}}}\n"),
                )
            }
            NodeStage::ShuttingDown => {
                let reason = "the server is shutting down and finishes running queries";
                (
                    false,
                    format!(
                        "{{\"status\":\"stopping\",\"reason\":{},\"version\":{version}}}\n",
                        quoted(reason)
                    ),
                )
            }
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Health::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_between_starting_and_stopping() {
        let health = Health::new();
        let (ready, page) = health.to_json();
        assert!(!ready && page.contains("opening the data directory"), "{page}");
        health.enter(NodeStage::Ready { id: "1-2".into(), name: "a\"b".into() });
        let (ready, page) = health.to_json();
        assert!(ready && page.contains(r#""name":"a\"b""#), "{page}");
        health.enter(NodeStage::ShuttingDown);
        assert!(!health.to_json().0);
    }
}
