//! `bench report`: the results in a folder as one page that works offline.

mod page;
mod results;
mod write;

pub use page::render;
pub use results::{Collected, ReportError, collect};
pub use write::write_page;
