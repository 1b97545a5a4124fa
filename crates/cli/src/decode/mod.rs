//! `rpcrdma decode`: what messages contain, and what a receiver does with them.
//!
//! Messages in hexadecimal are of the version that an option names; messages in captures are of the version that they
//! contain.

mod filter;
mod lists;
mod v1;
mod v2;

use crate::capture::{self, Showing, Shown};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use filter::FilterArgs;
use rpcrdma_capture::show::Style;
use serde_json::json;
use std::{
    io::{BufRead, Write},
    path::PathBuf,
};

/// The longest line that is read, in characters: a message of 64 KiB in hex, and more than any Send is long.
const MAX_LINE_CHARACTERS: u64 = 2 * (1 << 20);

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// Read RPC-over-RDMA messages in hexadecimal from standard input, one on each line
    #[arg(long, required_unless_present = "file", conflicts_with = "file")]
    pub(crate) hex: bool,
    /// Capture to read, pcap or pcapng; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print JSON, one object on each line; with --hex: {"decode": the header or null}, and with --classify "classify":
    /// what the receiver does
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw each call as a ladder, with the requester on the left and the responder on the right
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    pub(crate) ladder: bool,
    /// With --ladder: draw with lines and arrows of Unicode instead of ASCII
    #[arg(long, requires = "ladder")]
    pub(crate) unicode: bool,
    /// Show only totals: for each procedure the number of calls, their statuses, latencies, bytes and retransmissions;
    /// for each operation of NFS version 4 the number and the statuses; and the credits
    #[arg(long, conflicts_with_all = ["hex", "ladder"])]
    pub(crate) summary: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// With --hex: the version of RPC-over-RDMA that the connection speaks
    #[arg(long, value_name = "1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) rpcrdma: u8,
    /// With --hex: also print what a receiver in this role does with each message
    #[arg(long, value_name = "ROLE", conflicts_with = "file")]
    pub(crate) classify: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// The end that answers calls
    Responder,
    /// The end that makes calls
    Requester,
}

pub(crate) fn run(args: &DecodeArgs, input: impl BufRead, output: &mut impl Write) -> Result<()> {
    if let Some(file) = &args.file {
        let shown = match (args.json, args.ladder, args.unicode) {
            _ if args.summary => Shown::Summary { json: args.json },
            (true, _, _) => Shown::Json,
            (false, false, _) => Shown::Text,
            (false, true, true) => Shown::Ladder(Style::Unicode),
            (false, true, false) => Shown::Ladder(Style::Ascii),
        };
        return capture::show(file, input, &Showing { shown, wanted: args.filter.wanted() }, output);
    }
    let mut input = input;
    let mut unreadable = 0_u64;
    for number in 1_u64.. {
        let mut line = String::new();
        let read = std::io::Read::take(&mut input, MAX_LINE_CHARACTERS)
            .read_line(&mut line)
            .with_context(|| format!("cannot read line {number}"))?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE_CHARACTERS && !line.ends_with('\n') {
            bail!("line {number} is longer than {MAX_LINE_CHARACTERS} characters");
        }
        let text = match (parse_hex(line.trim()), args.rpcrdma) {
            (Some(message), 2) if args.json => v2::describe_json(&message, args.classify).to_string(),
            (Some(message), 2) => v2::describe(&message, args.classify),
            (Some(message), _) if args.json => v1::describe_json(&message, args.classify).to_string(),
            (Some(message), _) => v1::describe(&message, args.classify),
            (None, _) => {
                unreadable += 1;
                crate::failure::warning(&format!("line {number} is not hexadecimal"));
                if args.json {
                    json!({ "decode": null, "error": "not hexadecimal" }).to_string()
                } else {
                    "not hexadecimal".into()
                }
            }
        };
        writeln!(output, "{text}")?;
    }
    output.flush()?;
    if unreadable > 0 {
        bail!("{unreadable} lines could not be read");
    }
    Ok(())
}

fn parse_hex(text: &str) -> Option<Bytes> {
    // A digit is below 16.
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn decode(input: &str, rpcrdma: u8, json: bool, classify: Option<Role>) -> (Result<()>, String) {
        let mut output = Vec::new();
        let args = DecodeArgs {
            hex: true,
            file: None,
            json,
            ladder: false,
            unicode: false,
            summary: false,
            filter: FilterArgs::default(),
            rpcrdma,
            classify,
        };
        let result = run(&args, input.as_bytes(), &mut output);
        (result, String::from_utf8(output).unwrap())
    }

    /// Every vector of a version, asked as a user would ask. Returns how many there are.
    fn vectors_are_answered(version: u8) -> usize {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/rpcrdma-headers.jsonl");
        let mut seen = 0;
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let vector: Value = serde_json::from_str(line).unwrap();
            if vector["version"] != version {
                continue;
            }
            seen += 1;
            let role = if vector["role"] == "responder" { Role::Responder } else { Role::Requester };
            let hex = format!("{}\n", vector["hex"].as_str().unwrap());
            let (result, output) = decode(&hex, version, true, Some(role));
            result.unwrap();
            let answer: Value = serde_json::from_str(&output).unwrap();
            let allowed = vector["classify"].as_array().unwrap();
            assert!(allowed.contains(&answer["classify"]), "{}: {answer}", vector["name"]);
            let only_accept = allowed.len() == 1 && allowed[0]["action"] == "accept";
            assert!(
                answer["decode"] == vector["decode"] || (version == 1 && !only_accept && answer["decode"].is_null()),
                "{}: {answer}",
                vector["name"]
            );
            let (result, text) = decode(&hex, version, false, Some(role));
            result.unwrap();
            assert_eq!(text.lines().count(), 1, "{}: {text}", vector["name"]);
        }
        seen
    }

    /// proves: V1-4.2-a, V1-4.2.4-a, V1-4.5-a, V1-4.5.1-a, V1-4.5.2-a
    #[test]
    fn version_1_vectors_are_answered() {
        assert_eq!(vectors_are_answered(1), 521);
    }

    /// proves: V2-6-a, V2-6.2.1-a, V2-6.2.2-a, V2-6.2.3-b, V2-6.3.3-b, V2-6.3.4-a, V2-7.1.1-a, V2-7.1.2-a, V2-7.2.1-a
    /// proves: V2-7.2.2-a
    #[test]
    fn version_2_vectors_are_answered() {
        assert_eq!(vectors_are_answered(2), 862);
    }

    #[test]
    fn lines_that_are_not_hex_are_counted() {
        let (result, output) = decode("zz\n0\n\n", 1, true, None);
        assert!(result.is_err());
        let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], json!({ "decode": null }), "an empty line is an empty message");
    }

    #[test]
    fn a_person_reads_one_line() {
        let message = "11223344000000010000002000000004000000010000000100000001\n";
        let (_, output) = decode(message, 1, false, Some(Role::Requester));
        assert_eq!(output, "RDMA_ERROR xid 0x11223344 credits 32, ERR_VERS 1 to 1; accepted\n");
    }

    #[test]
    fn a_person_reads_one_line_of_version_2() {
        let lines = [
            (
                "556677880000000200400010000000050000000400000002000000010000000400002000000000630000000301020300",
                "RDMA2_CONNPROP TPMORE xid 0x55667788 credits +16 of 64, SBSIZ 8192, property 99 (3 bytes); accepted",
            ),
            (
                "556677880000000200400010000000040000000100000009000000010000ffff",
                "RDMA2_ERROR RESPONSE xid 0x55667788 credits +16 of 64, RDMA2_ERR_WRITE_RESOURCE chunk_index 1 \
                 length_needed 65535; accepted",
            ),
            (
                "000000000000000200400010000000010000000000000000000000000000000000000000",
                "RDMA2_NOMSG xid 0x00000000 credits +16 of 64, nothing but the grant; accepted",
            ),
            (
                "556677880000000200400010000000090000000001020304",
                "header type 9 xid 0x55667788 credits +16 of 64, 4 bytes; answered with RDMA2_ERR_INVAL_HTYPE",
            ),
            (
                "55667788000000020040001000000005000000000000000100000001000000020a0b0000",
                "RDMA2_CONNPROP xid 0x55667788 credits +16 of 64, SBSIZ (2 bytes that are not a value); answered with \
                 RDMA2_ERR_BAD_PROPVAL",
            ),
        ];
        for (message, expected) in lines {
            let (_, output) = decode(&format!("{message}\n"), 2, false, Some(Role::Responder));
            assert_eq!(output.trim_end(), expected);
        }
    }
}
