//! Baselines that put a server's numbers into proportion: a server that only echoes, and redis.

pub mod echo;
pub mod null_server;
pub mod redis;
