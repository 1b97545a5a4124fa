//! Names in JSON, for programs. [`rpcrdma_nfs::names`] has the form for people.

pub use rpcrdma_nfs::names::{escaped, is_deceptive};
use serde_json::Value;

/// JSON in which deceptive characters stand as `\u` escapes: a program that parses it gets the same text.
pub fn json(value: &Value) -> String {
    // Outside of strings JSON has ASCII alone, and in strings serde_json has escaped what is below space.
    let text = value.to_string();
    if !text.contains(is_deceptive) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_deceptive(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_be_turned_around_or_hidden() {
        let deceptive = "a\u{9b}31m\u{202e}txt.exe\u{2066}\u{200b}\u{feff}z";
        let value = Value::from(deceptive);
        let text = json(&value);
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
