//! Things measured beside the server so that its numbers can be read as ratios: a server that only
//! answers, and redis.

pub mod echo;
pub mod null_server;
pub mod redis;
