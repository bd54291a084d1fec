//! The readiness of tables.

use std::sync::Arc;
use std::time::Instant;

use rekindle_cluster::readiness;

use crate::fixture::{create, on, table, three};
use crate::hub::{Hub, TEST_TIMEOUT, change};

#[test]
fn all_replicas_are_ready_only_once_the_preferred_server_leads() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    change(&a, table(&a).config.id, on(&[&[&b, &a, &c]])).unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let state = c.node.states().table_state(&table(&c));
        let is_new = state[0].primary == b.server();
        let ready = readiness(&state);
        if is_new && ready.all_replicas {
            assert_eq!(state[0].leader, Some(b.server()));
            return;
        }
        assert!(ready.writes || state[0].leader.is_none(), "a leader takes writes: {state:?}");
        assert!(Instant::now() < deadline, "{state:?}");
    }
}
