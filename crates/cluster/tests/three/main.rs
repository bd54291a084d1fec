//! Several nodes in one process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod added;
mod administration;
mod catalog;
mod copies;
mod division;
mod fixture;
mod halves;
mod heirs;
mod hub;
mod indexes;
mod leaving;
mod life;
mod majority;
mod moving;
mod proxies;
mod ready;
mod removal;
mod repair;
mod resigning;
mod restart;
mod sealing;
mod sights;
mod slow;
mod stalled;
