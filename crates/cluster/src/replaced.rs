//! Shards whose rows other shards of their table have here now: what they applied must be on the disk
//! before their log goes, since nobody replays it after that.

use std::sync::Arc;
use std::time::Duration;

use io::task;
use log::GroupId;
use shard::Shard;
use storage::TableId;

use crate::node::Core;
use crate::{AdminError, Catalog};

/// How long the groups may take to finish what was written to them, before it is tried again.
const PATIENCE: Duration = Duration::from_secs(2);

impl Core {
    /// Ends the writes of those of `strays` whose table has other shards now, and writes down what they
    /// have applied. The others' rows are wanted by nobody. A stray is a group, its table, and whether the
    /// catalog has the group elsewhere.
    pub(crate) fn keep_rows_of(
        &self,
        strays: &[(GroupId, TableId, bool)],
        catalog: &Catalog,
    ) -> Result<(), AdminError> {
        let replaced: Vec<Arc<Shard>> = {
            let hosted = task::lock(&self.hosted);
            let is_replaced = |(_, table, lives_elsewhere): &&(GroupId, TableId, bool)| {
                !lives_elsewhere && catalog.table_by_id(*table).is_some()
            };
            let open = strays.iter().filter(is_replaced).filter_map(|(group, ..)| hosted.get(group));
            // Nobody lets go of sealed groups before that is done: decision 0024.
            let open = open.filter(|open| !open.shard.seal_state().is_sealed());
            open.map(|open| Arc::clone(&open.shard)).collect()
        };
        if replaced.is_empty() {
            return Ok(());
        }
        replaced.iter().for_each(|shard| shard.retire());
        let deadline = task::now() + PATIENCE;
        for shard in &replaced {
            // One that does not lead has acknowledged nothing that it alone has. Others' disks may take for ever: the
            // group is kept until the next attempt, and everything else goes on.
            let synced = shard.sync().wait_for(deadline.saturating_duration_since(task::now()));
            drop(synced.map_err(|_| AdminError::Unfinished(shard.group()))?);
        }
        Ok(self.engine().flush()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::path::PathBuf;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use datum::{Bytes, Datum, Object, PrimaryKey, Text};
    use engine::memory::MemoryEngine;
    use io::Files;
    use io::sim::{SimClock, SimFiles, SimRandom};
    use log::Durability;
    use log::file::{FileLog, FileLogOptions};
    use shard::{Decision, Replicas};

    use super::*;
    use crate::catalog_row::CatalogRow;
    use crate::{Node, NodeOptions, Post, TableOptions, places_of};

    fn open(engine: MemoryEngine, files: &Arc<dyn Files>) -> Arc<Node> {
        let replicas = Replicas::new(Arc::new(engine)).unwrap();
        let (clock, post) = (Arc::new(SimClock::new()), Post::new(replicas.clone()));
        let dir = PathBuf::from("data");
        let options =
            FileLogOptions { transport: post.clone(), observer: post.clone(), ..FileLogOptions::default() };
        let log = FileLog::open(files.clone(), clock.clone(), &dir.join("log"), replicas.clone(), options);
        Node::open(NodeOptions {
            dir,
            server_name: Text::from_static("test"),
            server_tags: vec![Text::from_static("default")],
            replicas,
            log: Arc::new(log.unwrap()),
            post,
            cache_size_mb: None,
            addresses: Vec::new(),
            clock,
            files: files.clone(),
            random: Arc::new(SimRandom::new(7)),
            admin_password: (Object::default(), false),
        })
        .unwrap()
    }

    #[test]
    fn what_a_shard_applied_is_there_when_the_log_of_its_group_is_not() {
        let (engine, files) = (MemoryEngine::new(), Arc::new(SimFiles::new(7)));
        let files: Arc<dyn Files> = files;
        files.create_dir_all(&PathBuf::from("data")).unwrap();
        let node = open(engine.clone(), &files);
        let id = node.create_table("test", "t", TableOptions::default()).unwrap().id;
        let shard = |node: &Node| node.catalog().table("test", "t").unwrap().shards()[0].clone();
        let handle = shard(&node);
        let key = PrimaryKey::encode(&Datum::from("kept")).unwrap();
        let row: Object = [(Text::from_static("id"), Datum::from("kept"))].into_iter().collect();
        let put = vec![(key.clone(), Decision::Put(row))];
        handle.near().unwrap().write_rows(put, Durability::Hard).wait().unwrap();
        let old = handle.group();
        drop(handle);
        // Another shard takes over, made by somebody who knew nothing of that row.
        node.change(|catalog, draft| {
            let mut config = catalog.table_by_id(id).unwrap().config.clone();
            config.shards = node.founded(draft, vec![Bytes::new()], &places_of(&config.shards));
            draft.put(CatalogRow::Table(config));
            Ok(())
        })
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while node.log().group_status(old).is_ok() {
            assert!(Instant::now() < deadline, "the old group goes on");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(node);
        let node = open(engine.after_crash(), &files);
        assert_ne!(shard(&node).group(), old);
        assert!(shard(&node).near().unwrap().get(&key).unwrap().is_some(), "an acknowledged row is lost");
    }

    #[test]
    fn a_catalog_that_is_being_copied_is_not_acted_on() {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        files.create_dir_all(&PathBuf::from("data")).unwrap();
        let node = open(MemoryEngine::new(), &files);
        node.create_table("test", "t", TableOptions::default()).unwrap();
        let group = node.catalog().table("test", "t").unwrap().shards()[0].group();
        // As when the copy begins: its rows have gone, and those of the copy have not come.
        node.replicas().mark_recovering(crate::node::CATALOG_GROUP);
        shard::clear_rows(&node.catalog_shard, &datum::KeyRange::all()).unwrap();
        node.publish().unwrap();
        assert!(node.catalog().table("test", "t").is_some(), "everything was taken for deleted");
        assert!(node.log().group_status(group).is_ok());
    }

    #[test]
    fn a_replica_of_a_later_catalog_is_not_discarded_because_of_an_earlier_one() {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        files.create_dir_all(&PathBuf::from("data")).unwrap();
        let node = open(MemoryEngine::new(), &files);
        node.create_table("test", "t", TableOptions::default()).unwrap();
        let group = node.catalog().table("test", "t").unwrap().shards()[0].group();
        // As after a restart with the catalog of before it was placed here, which names another.
        node.past_is_known.store(false, Ordering::Release);
        task::lock(&node.hosted).get_mut(&group).unwrap().is_named = false;
        let without = Catalog::default();
        node.discard_strays(&without).unwrap();
        assert!(node.log().group_status(group).is_ok(), "it left for good");
        node.past_is_known.store(true, Ordering::Release);
        node.discard_strays(&without).unwrap();
        node.log().group_status(group).unwrap_err();
    }
}
