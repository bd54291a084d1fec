//! A library that is preloaded into a process (`LD_PRELOAD`) and records its changes to the files of one directory. It is
//! inactive without `REKINDLE_POWERCUT_ROOT` (the directory, an absolute path) and `REKINDLE_POWERCUT_JOURNAL` (the file to
//! append to, outside of the directory).
//!
//! It defines the functions of libc that change files. Each carries out its system call with a lock held, so that the
//! journal has the changes in their order, and records it before. Calls that change files in a way that has no record end
//! the process; calls that reach the kernel without libc are found when the journal is compared with the directory.
#![allow(unsafe_code, reason = "functions of libc, with their types, that carry out system calls")]

mod bytes;
mod names;
mod paths;
mod recorder;
mod refused;
mod syncs;
