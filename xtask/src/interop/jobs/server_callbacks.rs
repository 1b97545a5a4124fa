//! Minor version 0, where Linux's nfsd makes a connection of its own to call our client: nfsd sends CB_NULL to learn
//! whether the client answers, delegates files when it does, and recalls them over that connection. The guest has an
//! address in a network of the job's own, and our client listens at the host's address there.
//!
//! From minor version 1 on nfsd sends no CB_NULL: it assumes that the back channel of a session answers
//! (`server_delegations`).

use super::{
    Job,
    client_delegations::reverse_direction,
    server_delegations::{FILES, recalled},
};
use crate::interop::{context::Context, flavour, guest::GuestOptions, host, network, process, tshark};
use anyhow::ensure;
use std::{fs, path::Path};

pub(super) const JOB: Job = Job {
    name: "server-callbacks",
    about: "Linux's nfsd calls our client of minor version 0 over a connection of its own: CB_NULL, a delegation, CB_RECALL",
    seconds: 180,
    guests: 1,
    scales: false,
    flavours: flavour::CALLED_APART,
    run,
};

/// Where nfsd listens in the guest: for RDMA, and for TCP.
const RDMA_PORT: u16 = 20_049;
const TCP_PORT: u16 = 2_049;

fn run(context: &Context) -> anyhow::Result<()> {
    let program = host::build_delegated(&host::root())?;
    let network = context.network(network::ETHERNET)?;
    let nfsd = GuestOptions::new("nfsd", include_str!("../../../interop/guest/nfsd.sh")).capture();
    let mut nfsd = network.guest(nfsd)?;
    nfsd.wait_for_mark("serves")?;
    let flavour = context.flavour();
    let port = if flavour.is_tcp() { TCP_PORT } else { RDMA_PORT };
    let server = format!("{}:{port}", nfsd.address()?);
    let capture = context.dir().join("ours.pcapng");
    let mut command = network.command(&program);
    command.args(["--listen", &network.host().to_string()]);
    command.args([flavour.transport, &server, flavour.version.trim_start_matches("4.")]).arg(&capture);
    command.args(FILES.map(|file| format!("/exports/{file}")));
    recalled(context, command, |script| nfsd.run(script))?;

    let wire = nfsd.wire();
    nfsd.say("end")?;
    nfsd.finish()?;
    if flavour.is_tcp() {
        // The capture has what goes over RDMA.
        fs::remove_file(&capture)?;
    }
    asked_and_answered(context, &wire)?;
    reverse_direction(context, &wire, FILES.len())?;
    returned(context, &wire)
}

/// Fails unless our reader and tshark find nfsd's CB_NULL and our answer in a capture, before any delegation.
fn asked_and_answered(context: &Context, wire: &Path) -> anyhow::Result<()> {
    let shown = decode(context, wire, "NULL")?;
    let nulls = || shown.lines().filter(|line| line.contains("NFS callback 1 NULL"));
    let of = |kind: &str| nulls().filter(|line| line.contains(kind)).count();
    let ours = (of("Call NFS callback 1 NULL"), of("Reply executed"));
    let theirs = tshark::callback_nulls(context, wire)?;
    context.note(format!("CB_NULL and answers: decode {ours:?}, tshark {theirs:?}"));
    for (who, (calls, answers)) in [("decode", ours), ("tshark", theirs)] {
        let see = wire.display();
        ensure!(calls > 0, "{who} shows no CB_NULL in {see}");
        ensure!(answers == calls, "{who} shows {answers} answers to {calls} CB_NULL in {see}");
    }
    Ok(())
}

/// Fails unless our client has returned each delegation and nfsd has accepted it.
fn returned(context: &Context, wire: &Path) -> anyhow::Result<()> {
    let shown = decode(context, wire, "DELEGRETURN")?;
    let answers = shown.lines().filter(|line| line.contains("Reply NFS4_OK") && line.contains("DELEGRETURN")).count();
    ensure!(answers >= FILES.len(), "{answers} delegations of {} went back; see {}", FILES.len(), wire.display());
    Ok(())
}

fn decode(context: &Context, wire: &Path, procedure: &str) -> anyhow::Result<String> {
    let mut command = context.command();
    command.arg("decode").arg(wire).args(["--procedure", procedure]);
    Ok(process::run(context, &format!("decode-{procedure}"), command)?.expect_success()?.stdout)
}
