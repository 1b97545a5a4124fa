//! The second reader: tshark reads each capture of a job. It may mark as malformed only what it also marks in the
//! capture of two Linux kernels.
//!
//! It knows version 1 of RPC-over-RDMA only. In messages of version 2 it looks for the chunk lists of version 1, then
//! takes them for data of RDMAP; some messages end before these supposed lists do ([`UNNAMED`]). If a server refuses
//! version 2 and the client goes on in version 1 on the same connection, tshark reads on from there.
//!
//! The project's own reader checks credits, FPDUs, CRCs and versions in the same captures ([`Wire::judge`]).

use super::{context::Context, crash::CONSOLE_LOG, process, wire::Wire};
use anyhow::bail;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

/// Packets that tshark marks although they are right, and that the capture of two Linux kernels does not have: the kind
/// as [`kind`] makes it, and the reason.
const KNOWN: &[(&str, &str)] = &[
    (
        "V# READLINK Reply (Call In #)[Malformed Packet]",
        "the same as with READ: the reply lacks what RDMA Write placed in the same TCP segment. Our client offers a Write chunk for a \
         link's text, as RFC 8267 allows; Linux's client does not. The replies marked are Linux's server's own",
    ),
    (
        "V# Reply (Call In #)[Malformed Packet]",
        "the same in a COMPOUND of version 4: its READ lacks what RDMA Write placed. tshark names no operation of a reply that it cannot \
         read to its end",
    ),
    (
        "# > # MPA FPDU[BoundErrorUnreassembled Packet]",
        "it has taken bytes in the middle of file data for the length of an FPDU, and puts together 60 KiB that are none. Our own \
         reader has found the end and the CRC of every FPDU right before",
    ),
    (
        "# > # MPA FPDU[Malformed Packet]",
        "the same where the supposed FPDU is too short for a header of DDP. tshark does not always come as far as its CRC. Our own \
         reader would have lost its way, and fails a capture for that where no byte is missing",
    ),
];

/// The kind of a packet in which tshark has found no protocol above RDMAP.
const UNNAMED: &str = "[Malformed Packet]";

/// The most packets of one kind that we let tshark show in detail; if there are more, the kind needs a reason in
/// [`KNOWN`].
const LOOKED_AT: usize = 50;

/// The most packets that we let tshark show because it has assembled messages from them.
const PARTS_LOOKED_AT: usize = LOOKED_AT * 100;

/// RPC's call, as tshark writes it.
const CALL: &str = "0";

/// RPC's reply, READ of NFS versions 2 and 3 and of version 4, as tshark writes them.
const REPLY: &str = "1";
const READ: &str = "6";
const READ_4: &str = "25";

/// Reads all captures in the job's folder and in its guests' folders.
pub(super) fn judge_all(context: &Context) -> anyhow::Result<()> {
    let mut captures = Vec::new();
    find(context.dir(), 1, &mut captures);
    captures.sort();
    for capture in captures {
        let wire = Wire::read(context, &capture)?;
        wire.judge(&capture)?;
        judge(context, &capture, &wire.versions.in_version_2)?;
    }
    Ok(())
}

/// Captures in a folder and in those below it.
fn find(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && depth > 0 && path.join(CONSOLE_LOG).exists() {
            find(&path, depth - 1, found);
        } else if path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng") {
            found.push(path);
        }
    }
}

/// A capture's name joined with its folder's name, for a file in the job's folder.
pub(super) fn flat_name(context: &Context, path: &Path) -> String {
    let inside = path.strip_prefix(context.dir()).ok().or(path.file_name().map(Path::new)).unwrap_or(path);
    inside.display().to_string().replace(['/', '.'], "-")
}

/// `in_version_2` names the ends of connections that speak version 2.
fn judge(context: &Context, capture: &Path, in_version_2: &BTreeSet<String>) -> anyhow::Result<()> {
    let reference = context.image().reference();
    if !reference.exists() {
        bail!("{} is not there: run the job linux-linux", reference.display());
    }
    let usual = malformed(context, &reference, &BTreeSet::new())?;
    let mut found = malformed(context, capture, in_version_2)?;
    found.retain(|kind, _| !usual.contains_key(kind) && !KNOWN.iter().any(|(known, _)| known == kind));
    for (kind, frames) in found {
        let unexplained = not_lost(context, capture, &frames)?;
        if let Some(first) = unexplained.first() {
            bail!(
                "tshark marks {} packets as malformed in a way that it does not between two Linux kernels: {kind:?}, first in packet \
                 {first}; see {}",
                unexplained.len(),
                capture.display()
            );
        }
    }
    Ok(())
}

/// tshark on a capture. Linux's client takes ports below 1,024, and without this option tshark would read a connection
/// from port 862 as TWAMP, for example.
pub(super) fn tshark(capture: &Path) -> Command {
    let mut command = Command::new("tshark");
    command.args(["-o", "tcp.try_heuristic_first:TRUE", "-r"]).arg(capture);
    command
}

/// How often tshark finds an operation of CB_COMPOUND in a capture, by its number: in calls, and in replies.
pub(super) fn callbacks(context: &Context, capture: &Path, operation: u32) -> anyhow::Result<(usize, usize)> {
    let mut command = tshark(capture);
    let wanted = format!("nfs.cb.operation == {operation} && !_ws.malformed");
    command.args(["-Y", &wanted, "-T", "fields", "-e", "rpc.msgtyp", "-e", "nfs.cb.operation"]);
    let finished = process::run(context, &format!("tshark-callbacks-{}", flat_name(context, capture)), command)?;
    Ok(called_and_answered(&finished.expect_success()?.stdout, operation))
}

/// How often tshark finds CB_NULL in a capture: calls, and replies.
pub(super) fn callback_nulls(context: &Context, capture: &Path) -> anyhow::Result<(usize, usize)> {
    let mut command = tshark(capture);
    // The program that a client names for its callbacks, as Linux's and ours do.
    command.args(["-Y", "rpc.program == 0x40000000 && rpc.procedure == 0 && !_ws.malformed"]);
    command.args(["-T", "fields", "-e", "rpc.msgtyp", "-e", "rpc.procedure"]);
    let finished = process::run(context, &format!("tshark-nulls-{}", flat_name(context, capture)), command)?;
    Ok(called_and_answered(&finished.expect_success()?.stdout, 0))
}

/// How often tshark finds calls of these procedures of NLM 4 that an address has sent.
pub(super) fn nlm_calls(
    context: &Context,
    capture: &Path,
    from: Ipv4Addr,
    procedures: &[u32],
) -> anyhow::Result<usize> {
    let mut command = tshark(capture);
    let numbers = procedures.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let wanted =
        format!("rpc.program == 100021 && rpc.msgtyp == 0 && rpc.procedure in {{{numbers}}} && ip.src == {from}");
    command.args(["-Y", &wanted, "-T", "fields", "-e", "frame.number"]);
    let finished = process::run(context, &format!("tshark-nlm-{}", flat_name(context, capture)), command)?;
    // The capture of a running guest may end within a packet: tshark reports that, and shows the complete packets.
    Ok(finished.stdout.lines().count())
}

/// How often tshark finds GETACL and SETACL of version 3 in calls to an address.
pub(super) fn lists(context: &Context, capture: &Path, to: Ipv4Addr) -> anyhow::Result<(usize, usize)> {
    let mut command = tshark(capture);
    let wanted = format!("rpc.program == 100227 && rpc.msgtyp == 0 && ip.dst == {to} && !_ws.malformed");
    command.args(["-Y", &wanted, "-T", "fields", "-e", "rpc.procedure"]);
    let finished = process::run(context, &format!("tshark-lists-{}", flat_name(context, capture)), command)?;
    let said = finished.expect_success()?.stdout;
    let count =
        |procedure: &str| said.lines().flat_map(|line| line.split(',')).filter(|found| *found == procedure).count();
    Ok((count("1"), count("2")))
}

/// The same from tshark's lines. A packet may hold several messages, and the operations of all of them stand in one
/// list: a packet with a call and a reply counts as both.
fn called_and_answered(lines: &str, operation: u32) -> (usize, usize) {
    let operation = operation.to_string();
    let mut found = (0, 0);
    for (messages, operations) in lines.lines().filter_map(|line| line.split_once('\t')) {
        let count = operations.split(',').filter(|number| *number == operation).count();
        let has = |wanted| messages.split(',').any(|kind| kind == wanted);
        found.0 += if has(CALL) { count } else { 0 };
        found.1 += if has(REPLY) { count } else { 0 };
    }
    found
}

/// The packets among these in which tshark has not lost its position.
///
/// tshark can take bytes in the middle of file data for the beginning of an FPDU, and then reads nonsense: the CRC of
/// that "FPDU" is wrong. Our own reader has already found every CRC of the capture right ([`Wire::judge`]). If the
/// nonsense looks like an unfinished Send, tshark puts it before the next Send, which then is malformed with a right
/// CRC.
fn not_lost(context: &Context, capture: &Path, frames: &[String]) -> anyhow::Result<Vec<String>> {
    let asked = in_detail(context, capture, &frames[..frames.len().min(LOOKED_AT)])?;
    let parts = parts(&asked);
    let lost_parts: Vec<_> = match parts.is_empty() {
        true => Vec::new(),
        false => in_detail(context, capture, &parts)?
            .into_iter()
            .filter(|(_, shown)| has_bad_crc(shown))
            .map(|(number, _)| number)
            .collect(),
    };
    let is_lost = |frame: &String| {
        asked.iter().any(|(number, shown)| {
            number == frame
                && (has_bad_crc(shown) || fragments(shown).iter().any(|fragment| lost_parts.contains(fragment)))
        })
    };
    Ok(frames.iter().filter(|frame| !is_lost(frame)).cloned().collect())
}

/// tshark's details of some packets, with their numbers.
fn in_detail(context: &Context, capture: &Path, frames: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let filter = format!("frame.number in {{{}}}", frames.join(", "));
    let mut command = tshark(capture);
    command.args(["-Y", &filter, "-V"]);
    let finished = process::run(context, &format!("tshark-lost-{}", flat_name(context, capture)), command)?;
    let said = finished.expect_success()?.stdout;
    let packets = said.split("\nFrame ").map(|packet| {
        let number = packet.trim_start_matches("Frame ").split(':').next().unwrap_or("");
        (number.to_owned(), packet.to_owned())
    });
    Ok(packets.collect())
}

fn has_bad_crc(shown: &str) -> bool {
    shown.contains("(Bad CRC32")
}

/// The packets from which tshark has assembled the messages that it shows, each once.
///
/// A single FPDU can consist of 46 packets of 1,460 bytes, and tshark shows all of them beside the packets of the Send.
fn parts(shown: &[(String, String)]) -> Vec<String> {
    let parts: BTreeSet<_> = shown.iter().flat_map(|(_, shown)| fragments(shown)).collect();
    parts.into_iter().take(PARTS_LOOKED_AT).collect()
}

/// The packets from which tshark has assembled a message in this one.
fn fragments(shown: &str) -> Vec<String> {
    let lines = shown.lines().filter_map(|line| line.trim().strip_prefix("[Frame: "));
    lines.filter_map(|line| line.split_once(',').map(|(number, _)| number.to_owned())).collect()
}

/// The packets that tshark marks as malformed: their numbers, by kind.
///
/// A packet may hold several messages, and tshark does not say which of them it means: a packet with a READ reply
/// counts as a READ reply.
fn malformed(
    context: &Context,
    capture: &Path,
    in_version_2: &BTreeSet<String>,
) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut command = tshark(capture);
    // If a port is used again soon, tshark takes the first frame of the new connection for a frame of the old one. No
    // FPDU begins like this: it would be longer than a segment.
    let marked = r#"_ws.malformed && !(tcp.payload[0:16] == "MPA ID Req Frame")"#;
    command.args(["-Y", marked, "-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let finished = process::run(context, &format!("tshark-{}", flat_name(context, capture)), command)?;
    let finished = finished.expect_success()?;
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in finished.stdout.lines() {
        let Some((frame, kind)) = kind_of_line(line, in_version_2) else { continue };
        kinds.entry(kind).or_default().push(frame.to_owned());
    }
    Ok(kinds)
}

/// The fields that tshark prints about each packet.
const FIELDS: [&str; 10] = [
    "frame.number",
    "ip.src",
    "tcp.srcport",
    "ip.dst",
    "tcp.dstport",
    "rpc.msgtyp",
    "nfs.procedure_v2",
    "nfs.procedure_v3",
    "nfs.opcode",
    "_ws.col.Info",
];

/// A packet's number and its kind, from tshark's line about it; none if it is a message of version 2.
fn kind_of_line<'a>(line: &'a str, in_version_2: &BTreeSet<String>) -> Option<(&'a str, String)> {
    let fields: Vec<_> = line.split('\t').collect();
    let [frame, from, from_port, to, to_port, messages, of_2, of_3, operations, info] = fields[..] else { return None };
    let has = |list: &str, wanted| list.split(',').any(|found| found == wanted);
    let is_read_reply = has(messages, REPLY) && (has(of_2, READ) || has(of_3, READ) || has(operations, READ_4));
    let kind = if is_read_reply { "a READ reply".to_owned() } else { kind(info) };
    let ends = [format!("{from}:{from_port}"), format!("{to}:{to_port}")];
    let is_of_version_2 = kind == UNNAMED && ends.iter().any(|end| in_version_2.contains(end));
    (!is_of_version_2).then_some((frame, kind))
}

/// tshark's text about a packet, without numbers and without its text about earlier DDP segments.
fn kind(info: &str) -> String {
    let last = ["[more DDP segments]", "[last DDP segment]"]
        .iter()
        .filter_map(|mark| info.rfind(mark).map(|at| at + mark.len()))
        .max()
        .unwrap_or(0);
    let mut kind = String::new();
    for letter in info[last..].chars() {
        match letter {
            digit if digit.is_ascii_digit() => {
                if !kind.ends_with('#') {
                    kind.push('#');
                }
            }
            other => kind.push(other),
        }
    }
    kind.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{UNNAMED, called_and_answered, fragments, kind, kind_of_line, parts};
    use std::collections::BTreeSet;

    const ENDS: &str = "127.0.0.1\t2049\t127.0.0.1\t900";

    fn line(frame: u32, messages: &str, procedures: &str, operations: &str, info: &str) -> String {
        format!("{frame}\t{ENDS}\t{messages}\t\t{procedures}\t{operations}\t{info}")
    }

    #[test]
    fn a_reply_of_read_is_one_in_all_versions() {
        let kind = |line: String| kind_of_line(&line, &BTreeSet::new()).unwrap().1;
        assert_eq!(kind(line(7, "1", "6", "", "V3 READ Reply")), "a READ reply");
        assert_eq!(kind(format!("7\t{ENDS}\t1\t6\t\t\tV2 READ Reply")), "a READ reply");
        assert_eq!(
            kind(line(84853, "1,1", "", "53,22,25,53,22,25", "Send with Invalidate [last DDP segment]")),
            "a READ reply"
        );
        assert_eq!(kind(line(8, "0", "", "53,22,25", "V4 Call READ")), "V# Call READ");
        assert_eq!(kind(line(9, "1", "", "53,22,9", "V4 Reply")), "V# Reply");
        assert_eq!(kind_of_line("9\t1", &BTreeSet::new()), None);
    }

    #[test]
    fn what_tshark_cannot_know_is_not_held_against_a_connection_of_version_2() {
        let unnamed = line(7, "", "", "", "29224 > 900 Send [last DDP segment][Malformed Packet]");
        let named = line(8, "1", "", "", "V4 Reply[Malformed Packet]");
        let of_2 = BTreeSet::from(["127.0.0.1:900".to_owned()]);
        assert_eq!(kind_of_line(&unnamed, &of_2), None);
        assert_eq!(kind_of_line(&unnamed, &BTreeSet::from(["127.0.0.1:901".to_owned()])).unwrap().1, UNNAMED);
        assert_eq!(kind_of_line(&named, &of_2).unwrap().1, "V# Reply[Malformed Packet]");
    }

    #[test]
    fn calls_of_the_server_and_their_answers_are_counted() {
        assert_eq!(called_and_answered("0\t11,4\n1\t11,4\n", 4), (1, 1));
        assert_eq!(called_and_answered("0,0\t11,4,11,4\n1\t11,4\n0,1\t11,4\n", 4), (3, 2));
        assert_eq!(called_and_answered("0\t11,14\n\n", 4), (0, 0));
    }

    #[test]
    fn kinds_have_no_numbers() {
        let info = "21049 > 55170 Write [more DDP segments]V3 READ Reply (Call In 83) Len: 32768[Malformed Packet]";
        assert_eq!(kind(info), "V# READ Reply (Call In #) Len: #[Malformed Packet]");
    }
    #[test]
    fn fragments_are_found() {
        let shown = "[2 Reassembled SMB Direct Fragments (9 bytes): #17(5), #18(4)]\n    [Frame: 17, payload: 0-4 (5 bytes)]\n    [Frame: 18, payload: 5-8]\n";
        assert_eq!(fragments(shown), ["17", "18"]);
    }

    /// The FPDU with a bad CRC is often the last of them.
    #[test]
    fn all_parts_of_packets_are_looked_at() {
        let lines =
            |from: u32| (from..from + 46).map(|part| format!("    [Frame: {part}, payload: 0-1459]\n")).collect();
        let shown: Vec<(String, String)> = [100, 140, 180].map(|from| (from.to_string(), lines(from))).into();
        assert_eq!(parts(&shown), (100..226).map(|part| part.to_string()).collect::<Vec<_>>());
    }
}
