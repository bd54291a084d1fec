//! `bench report`: the results in a folder as one page that works offline.

mod page;
mod results;
mod written;

pub use page::render;
pub use results::{Collected, ReportError, collect};
pub use written::write_page;
