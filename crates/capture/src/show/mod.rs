//! Showing what a capture holds: [`Text`] and [`Json`] with one line for each message, [`Ladder`] with arrows for each
//! call.

mod content;
mod describe;
mod filter;
mod gss;
mod header_json;
mod header_text;
mod json;
mod ladder;
mod statistics;
mod text;

pub use filter::{Filtered, MAX_HELD_BYTES, Wanted};
pub use json::Json;
pub use ladder::{Ladder, MAX_HELD_LINES, Style};
pub use statistics::{MAX_PROCEDURES, MAX_STATUSES, Statistics};
pub use text::Text;
