//! Names are octets: how they are shown to people and to programs.

use rpcrdma_nfs::v3::{FileType, Time};
use serde_json::{Map, Value};
use std::io::IsTerminal;

/// A name for a terminal or a message: control characters and what is no UTF-8 are escaped.
pub(crate) fn escaped(octets: &[u8]) -> String {
    let mut shown = String::with_capacity(octets.len());
    for chunk in octets.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
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
    match jiff::Timestamp::new(i64::from(time.seconds), nanoseconds) {
        Ok(timestamp) => timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => format!("{}s", time.seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_cannot_steer_a_terminal() {
        assert_eq!(escaped("grün".as_bytes()), "grün");
        assert_eq!(escaped(b"a\x1b[2J\n\xff"), "a\\u{1b}[2J\\n\\xff");
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
        assert_eq!(time(Time { seconds: u32::MAX, nanoseconds: u32::MAX }), "2106-02-07T06:28:15Z");
    }

    #[test]
    fn names_that_are_no_text_are_hex_in_json() {
        let mut object = Map::new();
        insert_json(&mut object, "name", b"a");
        insert_json(&mut object, "target", b"\xff\x00");
        assert_eq!(Value::Object(object), serde_json::json!({ "name": "a", "target_hex": "ff00" }));
    }
}
