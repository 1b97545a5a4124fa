//! The command line.

mod serve;

use crate::{bench, capture::CaptureArgs, cp, devices, files, lock, manual};
use clap::{Args, Parser, Subcommand, ValueEnum};
use rpcrdma::client::NfsUrl;
pub(crate) use serve::{Rpcbind, ServeArgs};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Serve and use NFS over RPC-over-RDMA, with or without RDMA hardware.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma", version, about, max_term_width = 100)]
#[command(after_help = "\
URLs are written nfs://HOST[:PORT]/PATH[?NAME=VALUE[&NAME=VALUE]...], with %XX for any byte:
  version=auto|3|...   the version of NFS: 2, 3, 4.0, 4.1 or 4.2 (auto: the highest from 3 on that the
                       server has)
  transport=rdma|tcp   what carries it (rdma)
  fabric=iwarp|verbs   rdma by software over TCP, or by a device of this machine (iwarp)
  device=NAME          with fabric=verbs: which device (the one that leads to the server)
  rpcrdma=auto|1|2     the version of RPC-over-RDMA (auto: 2 if the server has it)
  sec=sys|krb5|...     who calls, and what is protected: sys, krb5, krb5i or krb5p (sys). Kerberos takes the tickets
                       that kinit has got
  principal=nfs/NAME   with Kerberos: the server's principal, where the realm knows it by another name than HOST
  nconnect=N           over how many connections calls are spread, 1 to 16 (1)
  mountport=N          where MOUNT answers over TCP, if version 2 or 3 is spoken (asks rpcbind, else 20048)
  nfsport=N            the same as :PORT
  uid=N, gid=N         as whom to call (the user who runs the command)
PORT is 20049 for rdma and 2049 for tcp unless said otherwise. An IPv6 address stands in brackets, a
link-local one with its interface: [fe80::1%25eth0]. All addresses of a name are tried.

-h prints sizes with units where there are sizes to read (ls, df), as in the tools of those names; --help is help.
With --json, errors are objects on standard error: {\"error\": {\"path\", \"local\", \"procedure\", \"status\", \"message\"}}.

Exit codes: 0 done, 1 failed, 2 wrong usage; get, put and cp: 128 and the number of the signal that ended them;
lock: the command's, and some of its own.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory over NFS/RDMA
    Serve(ServeArgs),
    /// List a directory
    Ls(LsArgs),
    /// Show everything that the server returns about a file
    Stat(StatArgs),
    /// Write files to standard output
    Cat(CatArgs),
    /// Copy files from a server
    Get(GetArgs),
    /// Copy files to a server
    Put(PutArgs),
    /// Copy files within a server, or from server to server
    Cp(cp::CpArgs),
    /// Make directories
    Mkdir(files::MkdirArgs),
    /// Remove files
    Rm(files::RmArgs),
    /// Move files within a server
    Mv(files::MvArgs),
    /// Give a file a further name, or make a symbolic link
    Ln(files::LnArgs),
    /// Show how full file systems are
    Df(files::DfArgs),
    /// Run a command while a file on a server is locked
    Lock(lock::LockArgs),
    /// Ask a server whether it answers, and how fast
    Ping(PingArgs),
    /// Measure how fast a server answers
    Bench(bench::BenchArgs),
    /// List the RDMA devices of this machine, their limits and what is used of them
    Devices(devices::DevicesArgs),
    /// Say what captures and RPC-over-RDMA messages contain
    Decode(DecodeArgs),
    /// Print a shell's script that completes this command's arguments
    Completions(manual::CompletionsArgs),
    /// Write the manual pages
    Man(manual::ManArgs),
}

impl Command {
    /// Whether errors are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Command::Serve(args) => args.json,
            Command::Ls(args) => args.client.json,
            Command::Stat(args) => args.client.json,
            Command::Cat(args) => args.client.json,
            Command::Get(args) => args.client.json,
            Command::Put(args) => args.client.json,
            Command::Cp(args) => args.client.json,
            Command::Lock(args) => args.client.json,
            Command::Mkdir(args) => args.connecting.json,
            Command::Rm(args) => args.connecting.json,
            Command::Mv(args) => args.connecting.json,
            Command::Ln(args) => args.connecting.json,
            Command::Df(args) => args.client.json,
            Command::Ping(args) => args.client.json,
            Command::Bench(args) => args.json,
            Command::Devices(args) => args.json,
            Command::Decode(args) => args.json,
            Command::Completions(_) | Command::Man(_) => false,
        }
    }
}

/// The words of a command line, with the value of --rpcbind joined to it. The option had none once, and a directory may
/// stand behind it: only its two values are taken for one (./own is a directory).
pub(crate) fn joined(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(last) if last == "--rpcbind" && (word == "own" || word == "system") => {
                last.push("=");
                last.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// What is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is done
    On,
    /// It is not done
    Off,
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Verbosity {
    /// Say more; twice: every event
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Write only what went wrong
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// How log messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for a person
    Text,
    /// One JSON object a line
    Json,
}

/// What the client commands have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Do not ask for iWARP's CRC; it is off only if the server does not ask for it either
    #[arg(long)]
    pub(crate) no_crc: bool,
    /// Print JSON, errors too; of cat errors alone, as what it prints is the contents of files
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// What to list
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    /// One line for each file, with mode, links, owner, group, size and time
    #[arg(short)]
    pub(crate) long: bool,
    /// Directories below, too
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// With -l: print sizes with units, such as 1.50 GiB
    #[arg(short = 'h', long, requires = "long", conflicts_with = "json")]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// Which files
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Which files
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    /// Begin so far from the beginning of each file, such as 4096 or 5G; a file that ends before has nothing there
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_octets)]
    pub(crate) offset: u64,
    /// Write so much of each file at most, such as 512 or 16M (default: up to its end)
    #[arg(long, value_name = "SIZE", value_parser = parse_octets)]
    pub(crate) length: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// How copies replace existing files.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Placing {
    /// Write into existing files, instead of to a temporary file beside them that takes their name when it is whole.
    /// This keeps their owner and other names, while mode and times become those of the source; a copy that fails
    /// leaves them half written
    #[arg(long)]
    pub(crate) inplace: bool,
    /// Continue a copy that was cut off, and keep what has come if this one is cut off. Files whose size and
    /// modification time equal those of their source are passed over; a part file is continued if its source still has
    /// the same time and is no shorter. Contents are not compared; run one such copy to a name at a time
    #[arg(long, conflicts_with = "inplace")]
    pub(crate) resume: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Copy directories and what is in them
    #[arg(short)]
    pub(crate) recursive: bool,
    /// What to copy
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    /// Where to: a directory that exists, or the new name
    pub(crate) local: PathBuf,
    /// Also keep extended attributes (user.*) and access control lists, if both sides have them; the command names each
    /// file whose attributes it could not keep. If POSIX cannot express a list, the copy keeps one that may allow less
    /// and never allows more
    #[arg(long)]
    pub(crate) xattrs: bool,
    #[command(flatten)]
    pub(crate) placing: Placing,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// Copy directories and what is in them
    #[arg(short)]
    pub(crate) recursive: bool,
    /// Do not try to give files the modes and times of their sources. Existing files on the server keep their modes;
    /// new files and directories get the modes of their sources without the bits of the umask
    #[arg(long, conflicts_with = "resume")]
    pub(crate) no_attributes: bool,
    /// Also keep extended attributes (user.*) and access control lists, if both sides have them; the command names each
    /// file whose attributes it could not keep. If POSIX cannot express a list, the copy keeps one that may allow less
    /// and never allows more
    #[arg(long)]
    pub(crate) xattrs: bool,
    /// What to copy
    #[arg(required = true)]
    pub(crate) local: Vec<PathBuf>,
    /// Where to: a directory that exists, or the new name
    pub(crate) url: NfsUrl,
    #[command(flatten)]
    pub(crate) placing: Placing,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Which server; the path does not matter but for the features that -v tells
    pub(crate) url: NfsUrl,
    /// How many times (until interrupted)
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Seconds between two calls
    #[arg(short, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub(crate) interval: Duration,
    /// Print what the connection, the session and the server can do
    #[arg(short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// Messages in hex on standard input, one a line
    #[arg(long, required_unless_present = "file", conflicts_with = "file")]
    pub(crate) hex: bool,
    /// A capture to read, pcap or pcapng; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print JSON, one object a line; with --hex: {"decode": the header or null, "classify": what a receiver does}
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw each call as a ladder: requester left, responder right
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    pub(crate) ladder: bool,
    /// Draw with Unicode's lines and arrows
    #[arg(long, requires = "ladder")]
    pub(crate) unicode: bool,
    /// Show only the sums of all calls: for each procedure how many, their statuses, latencies, bytes, retransmissions;
    /// for each operation of NFS version 4 how many and their statuses; credits
    #[arg(long, conflicts_with_all = ["hex", "ladder"])]
    pub(crate) summary: bool,
    #[command(flatten)]
    pub(crate) filter: crate::decode::FilterArgs,
    /// With --hex: the version of RPC-over-RDMA that the connection has settled
    #[arg(long, value_name = "1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) rpcrdma: u8,
    /// Say what this receiver does with the message
    #[arg(long, value_name = "ROLE", conflicts_with = "file")]
    pub(crate) classify: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Answers calls
    Responder,
    /// Makes calls
    Requester,
}

/// A number of bytes, with a suffix K, M, G or T for powers of 1024.
pub(crate) fn parse_octets(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    // A sign is not a digit, though the standard library accepts a plus.
    let number: Option<u64> = digits.parse().ok().filter(|_| !digits.starts_with('+'));
    let number = number.ok_or_else(|| format!("{text:?} is not a size; write it as 512M or 2G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is out of range"))
}

/// The same for what is never nothing, and fits into memory.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let size = usize::try_from(parse_octets(text)?).ok().filter(|&size| size > 0);
    size.ok_or_else(|| format!("{text:?} is out of range"))
}

/// Seconds, with fractions.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is out of range"))
}

/// The shortest time limit: below, a busy machine would be taken for a peer that does nothing.
const MIN_TIME_LIMIT: Duration = Duration::from_millis(500);

/// The longest: the system counts it in milliseconds in a word.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Seconds, as a limit on what peers may take.
fn parse_time_limit(text: &str) -> Result<Duration, String> {
    let limit = parse_seconds(text)?;
    if (MIN_TIME_LIMIT..=MAX_TIME_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    let (min, max) = (MIN_TIME_LIMIT.as_secs_f32(), MAX_TIME_LIMIT.as_secs());
    Err(format!("{text:?} is out of range: {min} to {max} seconds"))
}

/// The longest lease and grace period, in seconds: as of Linux's server. What a vanished client has locked stays locked
/// for this time.
const MAX_LEASE: u64 = 3_600;

/// Whole seconds, as the protocol counts a lease.
fn parse_lease(text: &str) -> Result<Duration, String> {
    let seconds: u64 = text.parse().map_err(|_| format!("{text:?} is not a whole number of seconds"))?;
    match seconds {
        1..=MAX_LEASE => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is out of range: 1 to {MAX_LEASE} seconds")),
    }
}

/// The longest: beyond it a sleep would be cheaper than anything it saves.
const MAX_BUSY_POLL: Duration = Duration::from_millis(10);

/// Microseconds of a thread's time after each message.
pub(crate) fn parse_busy_poll(text: &str) -> Result<Duration, String> {
    let time = text.parse().map(Duration::from_micros).map_err(|error| format!("{text:?}: {error}"))?;
    if time > MAX_BUSY_POLL {
        return Err(format!("{text:?} is out of range: 0 to {} microseconds", MAX_BUSY_POLL.as_micros()));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// The refusal of an unknown name lists the known ones: the help must explain each of them.
    #[test]
    fn the_help_explains_each_name_that_a_url_can_have() {
        let refusal = "nfs://host/?colour=red".parse::<NfsUrl>().unwrap_err().to_string();
        let (_, known) = refusal.split_once("known are ").unwrap();
        let help = Cli::command().render_long_help().to_string();
        for name in known.split(", ") {
            assert!(help.contains(&format!(" {name}=")), "the help does not explain {name}=");
        }
    }

    #[test]
    fn busy_polling_is_bounded() {
        assert_eq!(parse_busy_poll("0"), Ok(Duration::ZERO));
        assert_eq!(parse_busy_poll("10000"), Ok(MAX_BUSY_POLL));
        assert!(parse_busy_poll("10001").is_err() && parse_busy_poll("-1").is_err() && parse_busy_poll("a").is_err());
    }

    #[test]
    fn time_limits_are_neither_too_short_nor_too_long() {
        assert_eq!(parse_time_limit("0.5"), Ok(MIN_TIME_LIMIT));
        assert_eq!(parse_time_limit("86400"), Ok(MAX_TIME_LIMIT));
        for wrong in ["0.499", "86400.1", "0", "-1", "NaN", "soon"] {
            assert!(parse_time_limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn leases_are_whole_seconds_up_to_an_hour() {
        assert_eq!(parse_lease("1"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_lease("3600"), Ok(Duration::from_secs(MAX_LEASE)));
        for wrong in ["0", "3601", "1.5", "-1", "soon", ""] {
            assert!(parse_lease(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn places_in_files_may_be_zero_and_large() {
        assert_eq!(parse_octets("0"), Ok(0));
        assert_eq!(parse_octets("5G"), Ok(5 << 30));
        assert_eq!(parse_octets("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["", "G", "-1", "+1", "0x10", "18446744073709551616", "16777216T"] {
            assert!(parse_octets(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("3k"), Ok(3 << 10));
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        for wrong in ["", "M", "0", "-1", "1X", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
