//! JavaScript for `r.js`, in processes of its own: this side starts them, asks them, and ends
//! those that take too long; the other side ([`sandbox`]) is the same program under another command.

mod engine;
mod frame;
mod pool;
mod process;
mod sandbox;
mod values;

pub use pool::JsPool;
pub use sandbox::run_sandbox;
