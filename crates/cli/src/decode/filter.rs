//! Which calls of a capture are shown.

use clap::Args;
use rpcrdma_capture::{
    event::{PROCEDURE_NAMES, operation_names},
    show::Wanted,
};
use std::time::Duration;

/// What the user says of it. Of several options a call must meet all, of several values of one option any.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct FilterArgs {
    /// Show only calls with this XID, in decimal or in hexadecimal with 0x, and their replies; may be given several
    /// times
    #[arg(long, value_name = "XID", value_parser = parse_xid, value_delimiter = ',', conflicts_with = "hex")]
    xid: Vec<u32>,
    /// Show only calls of this procedure, such as READ or getattr, or COMPOUNDs of NFS version 4 with this operation,
    /// such as OPEN or cb_recall, and their replies; may be given several times
    #[arg(long, value_name = "NAME", value_parser = parse_procedure, value_delimiter = ',', conflicts_with = "hex")]
    procedure: Vec<String>,
    /// Show only calls that waited longer than this time for their reply, such as 10ms, 250us or 1s, also if the
    /// capture does not have the reply
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "hex")]
    slower_than: Option<Duration>,
}

impl FilterArgs {
    pub(super) fn wanted(&self) -> Wanted {
        Wanted { xids: self.xid.clone(), procedures: self.procedure.clone(), slower_than: self.slower_than }
    }
}

fn parse_xid(text: &str) -> Result<u32, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // A sign is not a digit, though the standard library accepts a plus.
    let xid = u32::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
    xid.ok_or_else(|| format!("{text:?} is not an XID; write it as 1234 or 0x4d2"))
}

fn parse_procedure(text: &str) -> Result<String, String> {
    let mut names: Vec<&str> = PROCEDURE_NAMES.to_vec();
    names.extend(operation_names().filter(|name| !PROCEDURE_NAMES.contains(name)));
    match names.iter().find(|name| name.eq_ignore_ascii_case(text)) {
        Some(name) => Ok((*name).to_owned()),
        None => Err(format!("{text:?} is not a procedure; there are {}", names.join(", "))),
    }
}

/// The units of a time, in nanoseconds. "s" comes last: the others end with it.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time; write it as 10ms, 250us or 1s");
    let (number, unit) = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns))).ok_or_else(wrong)?;
    let digit = |character: char| character.is_ascii_digit() || character == '.';
    let number: f64 = number.parse().ok().filter(|_| number.chars().all(digit)).ok_or_else(wrong)?;
    Duration::try_from_secs_f64(number * *unit as f64 / 1e9).map_err(|_| format!("{text:?} is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xids_are_decimal_or_hexadecimal() {
        assert_eq!(parse_xid("4294967295"), Ok(u32::MAX));
        assert_eq!(parse_xid("0x4D5764ed"), Ok(0x4D57_64ED));
        for wrong in ["", "0x", "4294967296", "0x100000000", "-1", "+1", "0x+1", "4d57"] {
            assert!(parse_xid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn procedures_are_known_in_any_case() {
        assert_eq!(parse_procedure("read"), Ok("READ".into()));
        assert_eq!(parse_procedure("Mnt"), Ok("MNT".into()));
        assert_eq!(parse_procedure("open"), Ok("OPEN".into()), "an operation");
        assert_eq!(parse_procedure("cb_recall"), Ok("CB_RECALL".into()));
        assert!(parse_procedure("REED").unwrap_err().contains("READDIRPLUS"));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for wrong in ["", "10", "s", "-1s", "+1s", "1e3s", "infs", "1m", "1.2.3s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert!(parse_duration(&format!("{}s", "9".repeat(30))).is_err());
    }
}
