//! Options of `serve` that cannot be done as asked: impossible ones are wrong usage, and the log tells of those that
//! the server changes.

use super::args::ServeArgs;
use crate::failure::Usage;
use anyhow::Result;
use rpcrdma::{Carrier, server::Options};

/// Refuses options that contradict each other: those of the command alone, and those of the server.
pub(super) fn check(args: &ServeArgs, options: &Options) -> Result<()> {
    if args.fabric == Carrier::Verbs && args.capture.is_some() {
        return Err(Usage("--capture sees software iWARP only: say --fabric iwarp".into()).into());
    }
    Ok(options.check()?)
}

/// Logs which options are not done as they were asked for.
pub(super) fn tell_changed(args: &ServeArgs, options: &Options) {
    for line in changed(args, options, rustix::process::geteuid().is_root()) {
        tracing::warn!("{line}");
    }
}

fn changed(args: &ServeArgs, options: &Options, is_root: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(asked) = args.memory
        && options.memory_budget() != asked
    {
        let used = options.memory_budget() >> 20;
        lines.push(format!("--memory: {asked} bytes are too few to serve with; {used} MiB are used"));
    }
    if args.no_root_squash && !is_root {
        lines.push(
            "--no-root-squash has no effect: this server does not run as root, and cannot act as another user".into(),
        );
    }
    if args.read_only && args.early_answers {
        lines.push("--async has no effect with --read-only: nothing is written".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::options;
    use super::*;
    use crate::command::{Cli, Command, joined};
    use clap::Parser;
    use rpcrdma::server::Rpcbind;

    fn args(more: &[&str]) -> ServeArgs {
        let words = ["rpcrdma", "serve", "/nowhere"].iter().chain(more).map(Into::into);
        match Cli::try_parse_from(joined(words)).unwrap().command {
            Command::Serve(args) => args,
            _ => unreachable!(),
        }
    }

    fn told(more: &[&str], is_root: bool) -> String {
        let args = args(more);
        changed(&args, &options::of(&args), is_root).join("\n")
    }

    #[test]
    fn what_is_taken_as_given_is_not_told() {
        assert_eq!(told(&[], false), "");
        assert_eq!(told(&["--memory", "16M", "--no-root-squash", "--async"], true), "");
    }

    #[test]
    fn what_is_not_taken_as_given_is_told() {
        for (more, is_root, part) in [
            (&["--memory", "1K"][..], true, "--memory: 1024 bytes are too few to serve with; 16 MiB are used"),
            (&["--memory", "16777215"], true, "--memory"),
            (&["--no-root-squash"], false, "--no-root-squash has no effect"),
            (&["--async", "--read-only"], true, "--async has no effect"),
        ] {
            let told = told(more, is_root);
            assert!(told.contains(part), "{more:?}: {told}");
        }
    }

    #[test]
    fn rpcbind_is_the_systems_unless_it_is_our_own() {
        let whose = |more: &[&str]| args(more).rpcbind;
        assert_eq!(whose(&[]), None);
        assert_eq!(whose(&["--rpcbind"]), Some(Rpcbind::System));
        assert_eq!(whose(&["--rpcbind", "--listen", "192.0.2.1:1"]), Some(Rpcbind::System));
        assert_eq!(whose(&["--rpcbind", "system"]), Some(Rpcbind::System));
        assert_eq!(whose(&["--rpcbind=own"]), Some(Rpcbind::Own));
        assert_eq!(whose(&["--rpcbind", "own"]), Some(Rpcbind::Own));
        // As it was before the option had values: what stands behind it is the directory.
        let words = joined(["rpcrdma", "serve", "--rpcbind", "./own"].map(Into::into));
        let Command::Serve(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
        assert_eq!((args.dir, args.rpcbind), (Some("./own".into()), Some(Rpcbind::System)));
    }

    fn check(args: &ServeArgs) -> Result<()> {
        super::check(args, &options::of(args))
    }

    #[test]
    fn contradictions_are_wrong_usage() {
        for more in [
            &["--device", "mlx5_0"][..],
            &["--fabric", "verbs", "--no-crc"],
            &["--fabric", "verbs", "--capture", "file"],
            &["--rpcbind"],
            &["--rpcbind", "--nfs", "4.2", "--mountd", "192.0.2.1:20048"],
            &["--rpcbind", "own"],
            &["--portmapper", "127.0.0.1:111", "--listen", "192.0.2.1:20049"],
            &["--rpcbind", "--portmapper", "192.0.2.1:111", "--listen", "192.0.2.1:20049"],
            &["--lease", "10", "--nfs", "3"],
            &["--host-locks", "off", "--nfs", "3", "--locks", "off"],
            &["--lockd", "127.0.0.1:0", "--locks", "off"],
            &["--statd", "127.0.0.1:0", "--nfs", "4.2"],
            &["--delegations", "off", "--nfs", "3"],
            &["--grace", "10", "--nfs", "3", "--locks", "off"],
            &["--domain", "example.com", "--nfs", "3"],
        ] {
            assert!(check(&args(more)).is_err(), "{more:?}");
        }
        assert!(check(&args(&["--rpcbind", "--listen", "192.0.2.1:20049"])).is_ok());
        assert!(check(&args(&["--rpcbind", "--nfs", "3", "--mountd", "192.0.2.1:20048"])).is_ok());
        assert!(check(&args(&["--rpcbind", "own", "--listen", "192.0.2.1:20049"])).is_ok());
        assert!(
            check(&args(&["--rpcbind", "own", "--portmapper", "127.0.0.1:1111"])).is_ok(),
            "for programs of this host"
        );
        assert!(check(&args(&["--nfs", "4.2", "--lease", "10", "--grace", "20"])).is_ok());
        assert!(check(&args(&["--domain", "example.com"])).is_ok(), "for those who set owners by name");
        assert!(check(&args(&["--host-locks", "off"])).is_ok());
        assert!(check(&args(&["--host-locks", "off", "--nfs", "3", "--grace", "10"])).is_ok());
        assert!(check(&args(&["--lockd", "127.0.0.1:0", "--statd", "127.0.0.1:0", "--nfs", "3"])).is_ok());
        assert!(check(&args(&["--locks", "off", "--nfs", "4.2"])).is_ok());
        assert!(check(&args(&["--delegations", "off"])).is_ok());
        assert!(check(&args(&["--fabric", "verbs", "--device", "mlx5_0"])).is_ok());
    }
}
