//! The suite every engine passes.
