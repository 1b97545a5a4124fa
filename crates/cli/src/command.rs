//! The command line: which commands there are. Each command has its options beside it.

use crate::{
    bench, cat::CatArgs, cp, decode::DecodeArgs, devices, files, get::GetArgs, lock, ls::LsArgs, manual,
    ping::PingArgs, put::PutArgs, serve::ServeArgs, stat::StatArgs,
};
use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// Serve and use NFS over RPC-over-RDMA and TCP, with or without RDMA hardware.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma", version, about, max_term_width = 100)]
#[command(after_help = "\
URLs are written nfs://HOST[:PORT]/PATH[?NAME=VALUE[&NAME=VALUE]...], with %XX for any byte. The
names, with the default values in parentheses:
  version=auto|3|...   the version of NFS: 2, 3, 4.0, 4.1, 4.2 or auto. auto is the highest version
                       that the server has, from 3 on, or with Kerberos from 4.0 on (auto)
  transport=rdma|tcp   what carries NFS (rdma)
  fabric=iwarp|verbs   what carries RDMA: iwarp is software over TCP, verbs is a device of this
                       machine (iwarp)
  device=NAME          with fabric=verbs: the device (the device through which this machine reaches
                       HOST)
  rpcrdma=auto|1|2     the version of RPC-over-RDMA; auto is 2 if the server has it, else 1 (auto)
  sec=sys|krb5|...     sys: the client states who calls; krb5: a ticket from kinit proves who calls;
                       krb5i: also, the data is protected against changes; krb5p: also, the data is
                       encrypted (sys)
  principal=nfs/NAME   with Kerberos: the server's principal, if it is not nfs/HOST (nfs/HOST)
  nconnect=N           the number of connections over which the client spreads calls, 1 to 16 (1)
  mountport=N          the TCP port of MOUNT, for versions 2 and 3 (the client asks rpcbind; without
                       an answer: 20048)
  nfsport=N            the same as :PORT
  uid=N, gid=N         with sec=sys: the user and the group that call (those of the command)
The default of PORT is 20049 for rdma and 2049 for tcp. An IPv6 address stands in brackets, a
link-local address with its interface: [fe80::1%25eth0]. If HOST has several addresses, the command
tries one after the other until one answers.

In ls -l and df, -h prints sizes with units, as in the tools of those names; --help prints the help.
With --json, errors are objects on standard error:
{\"error\": {\"path\", \"local\", \"procedure\", \"status\", \"message\"}}.

Exit codes: 0 done, 1 failed, 2 wrong usage. If a signal ends get, put or cp: 128 plus its number.
lock: the exit code of its command, or one of its own (see rpcrdma lock --help).")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve directories over NFS/RDMA and NFS/TCP
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
    /// Give a file a further name (a hard link), or make a symbolic link
    Ln(files::LnArgs),
    /// Show how full file systems are
    Df(files::DfArgs),
    /// Run a command while a file on a server is locked
    Lock(lock::LockArgs),
    /// Check whether a server answers, and how fast
    Ping(PingArgs),
    /// Measure how fast a server answers
    Bench(bench::BenchArgs),
    /// List the RDMA devices of this machine, their limits, and what this program uses of them
    Devices(devices::DevicesArgs),
    /// Show what captures and RPC-over-RDMA messages contain
    Decode(DecodeArgs),
    /// Print a script with which a shell completes the arguments of this command
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
        let (_, known) = refusal.split_once("the options are ").unwrap();
        let help = Cli::command().render_long_help().to_string();
        for name in known.split(", ") {
            assert!(help.contains(&format!(" {name}=")), "the help does not explain {name}=");
        }
    }
}
