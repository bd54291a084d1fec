//! reql
