//! The parts of `bench feeds`: the feeds and the rows that each of them has ([`kind`], [`block`], [`model`], [`table`]), the write
//! load ([`writes`]), the clients that follow feeds ([`elements`], [`subscribers`]) or open and close them ([`churn`]),
//! and the comparison of written with delivered changes ([`checker`]).

pub mod block;
pub mod checker;
pub mod churn;
pub mod elements;
pub mod kind;
pub mod model;
pub mod subscribers;
pub mod table;
pub mod writes;
