//! `rpcrdma ping`: NULL calls, one after the other. With `-v` what the connection, the session and the server can do.

mod connection;
mod served;
mod who;

use crate::{
    args::{ClientArgs, parse_seconds},
    names,
    session::{Bare, Sessions, version_3},
    transports::Options,
};
use anyhow::{Context, Result};
use clap::Args;
use connection::LastConnected;
use rpcrdma::client::{NfsUrl, NfsVersion, command::is_no_such_version};
use serde_json::json;
use std::{
    io::{self, Write},
    sync::Arc,
    time::{Duration, Instant},
};

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// The server; the path matters only with -v, which shows the features of the file system there
    pub(crate) url: NfsUrl,
    /// Number of calls (default: until you interrupt the command)
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Seconds between two calls
    #[arg(short, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub(crate) interval: Duration,
    /// Also print what the connection, the session and the server can do
    #[arg(short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

pub(crate) async fn run(args: PingArgs) -> Result<()> {
    let observer = Arc::new(LastConnected::default());
    let sessions = Sessions::new(Options { observer: Some(observer.clone()), ..args.client.clone().into() })?;
    let begin = Instant::now();
    let Bare { mut client, identity, callbacks } = sessions.bare(&args.url).await?;
    let connected = begin.elapsed();
    let server = client.transport().server();
    let (asked_for, mut times) = (args.url.rpcrdma, Vec::new());
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let (mut failure, mut out) = (None, io::stdout());
    for number in 1.. {
        let begin = Instant::now();
        let mut answered = tokio::select! {
            biased;
            answered = client.null() => answered,
            _ = &mut interrupted => break,
        };
        if times.is_empty() && args.url.version == NfsVersion::Auto && answered.as_ref().is_err_and(is_no_such_version)
        {
            client = version_3(&client);
            answered = client.null().await;
        }
        let time = begin.elapsed();
        if let Err(error) = answered {
            failure = Some(error);
            break;
        }
        // Versions are settled with the first answer.
        if args.verbose && times.is_empty() {
            let (transport, agreed) = (&**client.transport(), observer.agreed());
            let mut line = args.client.json.then(|| connection::object(transport, connected, &agreed, asked_for));
            if line.is_none() {
                connection::tell(transport, connected, &agreed, asked_for, &mut out)?;
            }
            let who = who::Who::of(&identity);
            let served = served::Served::ask(&sessions, &args.url, &identity, &client, callbacks.as_ref()).await;
            match &mut line {
                Some(line) => {
                    line["caller"] = who.object(&args.url);
                    line["nfs"] = served.object();
                    writeln!(out, "{line}")?;
                }
                None => {
                    who.tell(&args.url, &mut out)?;
                    served.tell(&mut out)?;
                }
            }
        }
        times.push(time);
        if args.client.json {
            writeln!(out, "{}", json!({ "seq": number, "us": micros(time) }))?;
        } else {
            writeln!(out, "NULL answered by {server}: seq={number} time={:.0} us", micros(time))?;
        }
        if args.count.is_some_and(|count| number >= count) {
            break;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(args.interval) => {}
            _ = &mut interrupted => break,
        }
    }
    summary(&mut times, args.client.json, &mut out)?;
    match failure {
        Some(source) => {
            let error = rpcrdma_nfs_client::Error::Call { procedure: "NULL", source };
            Err(error).with_context(|| names::escaped(args.url.host.as_bytes()))
        }
        None => Ok(()),
    }
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

fn summary(times: &mut [Duration], json: bool, out: &mut impl Write) -> io::Result<()> {
    times.sort_unstable();
    let (Some(min), Some(max)) = (times.first(), times.last()) else { return Ok(()) };
    let median = times[times.len() / 2];
    if json {
        writeln!(
            out,
            "{}",
            json!({ "answered": times.len(), "min_us": micros(*min), "median_us": micros(median), "max_us": micros(*max) })
        )?;
    } else {
        let count = times.len();
        writeln!(
            out,
            "{count} answered, min/median/max {:.0}/{:.0}/{:.0} us",
            micros(*min),
            micros(median),
            micros(*max)
        )?;
    }
    Ok(())
}
