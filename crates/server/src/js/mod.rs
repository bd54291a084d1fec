//! JavaScript for `r.js`, in separate processes. This side starts them, sends requests, and kills processes that take too
//! long. The other side ([`sandbox`]) is the same program with another command.

mod engine;
mod frame;
mod pool;
mod process;
mod sandbox;
mod values;

pub use pool::JsPool;
pub use sandbox::run_sandbox;
