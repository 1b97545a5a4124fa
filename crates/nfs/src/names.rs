//! Names are bytes, and come from peers that may be hostile: how names are shown to people.
//!
//! Characters that could steer a terminal, reverse the order of the text, or hide a part of it ([`is_deceptive`]) are
//! escaped.

/// Whether a character shows something other than itself: control characters (C0, DEL, C1), those that set the
/// direction of text, those that take no place, and the separators of lines and paragraphs.
pub fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // The soft hyphen, the Arabic letter mark, and Mongolian's vowel separator.
            '\u{AD}' | '\u{61C}' | '\u{180E}'
            // No width, joiners, direction marks; separators and embeddings; joiners, isolates, invisible operators.
            | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
            // The byte order mark, annotations, tags.
            | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}'
        )
}

/// A name for a terminal or a message: deceptive characters and bytes that are not UTF-8 are escaped.
pub fn escaped(octets: &[u8]) -> String {
    let mut shown = String::with_capacity(octets.len());
    for chunk in octets.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_deceptive(character) {
                shown.extend(character.escape_default());
            } else {
                shown.push(character);
            }
        }
        for octet in chunk.invalid() {
            shown.push_str(&format!("\\x{octet:02x}"));
        }
    }
    shown
}

/// The path of a name in a directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_be_turned_around_or_hidden() {
        let deceptive = "a\u{9b}31m\u{202e}txt.exe\u{2066}\u{200b}\u{feff}z";
        let shown = escaped(deceptive.as_bytes());
        assert_eq!(shown, "a\\u{9b}31m\\u{202e}txt.exe\\u{2066}\\u{200b}\\u{feff}z");
        assert_eq!(escaped(b"gr\xc3\xbcn\x1b[2J\n\xff"), "gr\u{fc}n\\u{1b}[2J\\n\\xff");
    }
}
