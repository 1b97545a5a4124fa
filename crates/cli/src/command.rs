//! The command line: which commands there are. Each command has its options beside it.

use crate::{
    bench, cat::CatArgs, cp, decode::DecodeArgs, devices, files, get::GetArgs, lock, ls::LsArgs, manual,
    ping::PingArgs, put::PutArgs, serve::ServeArgs, stat::StatArgs,
};
use clap::{Parser, Subcommand};
use std::ffi::OsString;

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
            Command::Get(args) => args.copy.client.json,
            Command::Put(args) => args.copy.client.json,
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

/// The words of a command line, with the value of --rpcbind joined to it. The option once had no value, and a directory
/// may follow it: only its two values are taken for a value (./own is a directory).
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use rpcrdma::client::NfsUrl;

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
}
