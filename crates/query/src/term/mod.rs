//! The terms of an open query, one file per command or family.

pub(crate) mod between;
pub(crate) mod by_index;
pub(crate) mod coerce;
pub(crate) mod config;
pub(crate) mod db;
pub(crate) mod db_admin;
pub(crate) mod get;
pub(crate) mod get_all;
pub(crate) mod grant;
pub(crate) mod index;
pub(crate) mod info;
pub(crate) mod insert;
pub(crate) mod join;
pub(crate) mod map;
pub(crate) mod order_by;
pub(crate) mod placement;
pub(crate) mod range;
pub(crate) mod reconfigure;
pub(crate) mod sequence;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod table_admin;
pub(crate) mod union;
pub(crate) mod update;
pub(crate) mod wait;
