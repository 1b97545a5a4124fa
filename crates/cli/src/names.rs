//! Names are bytes, and come from servers that may be hostile: how they are shown to people and to programs.
//!
//! What could steer a terminal, reverse the order of what is shown, or hide a part of it is escaped for people and in
//! JSON, by the rules that `rpcrdma_capture::names` has for names in captures too. A program that reads standard output
//! without `--json` gets the bytes as they are.

use indicatif::HumanBytes;
pub(crate) use rpcrdma_capture::names::{escaped, json};
use rpcrdma_nfs::attr::{FileType, Time, Who};
pub(crate) use rpcrdma_nfs::names::join;
use serde_json::{Map, Value};
use std::io::IsTerminal;

/// A name for standard output: as it is for a program, escaped for a person.
pub(crate) fn for_output(octets: &[u8]) -> Vec<u8> {
    if std::io::stdout().is_terminal() { escaped(octets).into_bytes() } else { octets.to_vec() }
}

/// Puts a name into a JSON object: under `key` if it is UTF-8, else in hex under `key_hex`.
pub(crate) fn insert_json(object: &mut Map<String, Value>, key: &str, octets: &[u8]) {
    match std::str::from_utf8(octets) {
        Ok(text) => object.insert(key.into(), text.into()),
        Err(_) => {
            let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            object.insert(format!("{key}_hex"), hex.into())
        }
    };
}

/// A user or group for a person: as the server sends it.
// NFS4-8881-5.9-e
pub(crate) fn who(who: &Who) -> String {
    match who {
        Who::Number(number) => number.to_string(),
        Who::Name(name) => escaped(name),
    }
}

/// The mode as `ls -l` shows it: `drwxr-xr-x`.
pub(crate) fn mode(file_type: FileType, mode: u32) -> String {
    let kind = match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Block => 'b',
        FileType::Character => 'c',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
    };
    let mut shown = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        shown.push(if bits & 4 != 0 { 'r' } else { '-' });
        shown.push(if bits & 2 != 0 { 'w' } else { '-' });
        shown.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (false, false) => '-',
        });
    }
    shown
}

/// A size in bytes, as it is or in the largest unit that fits.
pub(crate) fn size(bytes: u64, human: bool) -> String {
    if human { HumanBytes(bytes).to_string() } else { bytes.to_string() }
}

/// What a file is, in a word.
pub(crate) fn file_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Block => "block device",
        FileType::Character => "character device",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
        FileType::Fifo => "named pipe",
    }
}

/// A time in UTC, to the second.
pub(crate) fn time(time: Time) -> String {
    let nanoseconds = i32::try_from(time.nanoseconds).unwrap_or(0).min(999_999_999);
    match jiff::Timestamp::new(time.seconds, nanoseconds) {
        Ok(timestamp) => timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => format!("{}s", time.seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_capture::names::is_deceptive;

    #[test]
    fn odd_names_cannot_steer_a_terminal() {
        assert_eq!(escaped("grün".as_bytes()), "grün");
        assert_eq!(escaped(b"a\x1b[2J\n\xff"), "a\\u{1b}[2J\\n\\xff");
    }

    /// C1's CSI, and characters that reverse the text, that cannot be seen, and that begin a line.
    const DECEPTIVE: &str = "a\u{9b}31m\u{7f}b\u{202e}txt.exe\u{2066}\u{200b}\u{200e}\u{61c}\u{2028}\u{feff}\u{e0041}z";

    #[test]
    fn names_cannot_be_turned_around_or_hidden() {
        let shown = escaped(DECEPTIVE.as_bytes());
        assert!(shown.is_ascii(), "{shown}");
        assert!(shown.starts_with("a\\u{9b}31m\\u{7f}b\\u{202e}txt.exe\\u{2066}\\u{200b}"), "{shown}");
        for plain in ["grün", "日本語", "עברית", "العربية", "नमस्ते", "a\u{301}", "\u{a0}"]
        {
            assert_eq!(escaped(plain.as_bytes()), plain, "what is a language's own stays");
        }
        for (first, last) in [(0x80, 0x9f), (0x200b, 0x200f), (0x2028, 0x202e), (0x2060, 0x206f)] {
            let is = |code: u32| char::from_u32(code).is_some_and(is_deceptive);
            assert!((first..=last).all(is), "{first:x}");
            assert!(!is(last + 1), "{last:x}");
        }
    }

    #[test]
    fn json_escapes_what_deceives_and_says_the_same() {
        let mut object = Map::new();
        insert_json(&mut object, "name", DECEPTIVE.as_bytes());
        insert_json(&mut object, "target", "grün\n\"".as_bytes());
        let value = Value::Object(object);
        let text = json(&value);
        assert!(!text.contains(is_deceptive) && text.contains("grün"), "{text}");
        assert!(text.contains("\\u009b") && text.contains("\\udb40\\udc41"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn modes_read_as_ls_shows_them() {
        assert_eq!(mode(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileType::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(FileType::Regular, 0o2644), "-rw-r-Sr--");
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(Time { seconds: 0, nanoseconds: 0 }), "1970-01-01T00:00:00Z");
        assert_eq!(time(Time { seconds: u32::MAX.into(), nanoseconds: u32::MAX }), "2106-02-07T06:28:15Z");
    }

    #[test]
    fn names_that_are_no_text_are_hex_in_json() {
        let mut object = Map::new();
        insert_json(&mut object, "name", b"a");
        insert_json(&mut object, "target", b"\xff\x00");
        assert_eq!(Value::Object(object), serde_json::json!({ "name": "a", "target_hex": "ff00" }));
    }
}
