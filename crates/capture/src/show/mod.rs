//! Showing what a capture holds: [`Text`] and [`Json`] with one line for each message, [`Ladder`] with arrows for each call.

mod describe;
mod header_json;
mod header_text;
mod json;
mod ladder;
mod text;

pub use json::Json;
pub use ladder::{Ladder, MAX_HELD_LINES, Style};
pub use text::Text;
