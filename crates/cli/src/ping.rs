//! `rpcrdma ping`: NULL calls, one after the other.

use crate::{args::PingArgs, names, session::Sessions};
use anyhow::{Context, Result};
use rpcrdma_nfs::v3;
use rpcrdma_oncrpc::{Client, NoAuth};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) async fn run(args: PingArgs) -> Result<()> {
    let sessions = Sessions::new(args.client.into())?;
    let begin = Instant::now();
    let transport = sessions.transport_for(&args.url).await?;
    let connected = begin.elapsed();
    let server = transport.server();
    if args.verbose {
        let limits = transport.limits();
        if args.client.json {
            println!(
                "{}",
                json!({
                    "server": server.to_string(), "connect_us": micros(connected),
                    "max_call": limits.max_call, "max_reply": limits.max_reply,
                })
            );
        } else {
            println!("connected to {server} in {:.0} us", micros(connected));
            println!("largest call {} octets, largest reply {} octets", limits.max_call, limits.max_reply);
        }
    }
    let client = Client::new(transport, Arc::new(NoAuth), v3::PROGRAM, v3::VERSION);
    let mut times = Vec::new();
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut failure = None;
    for number in 1.. {
        let begin = Instant::now();
        tokio::select! {
            biased;
            answered = client.null() => match answered {
                Ok(()) => {
                    let time = begin.elapsed();
                    times.push(time);
                    if args.client.json {
                        println!("{}", json!({ "seq": number, "us": micros(time) }));
                    } else {
                        println!("NULL answered by {server}: seq={number} time={:.0} us", micros(time));
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            },
            _ = &mut interrupted => break,
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
    summary(&mut times, args.client.json);
    match failure {
        Some(error) => Err(error).with_context(|| format!("NULL to {}", names::escaped(args.url.host.as_bytes()))),
        None => Ok(()),
    }
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

fn summary(times: &mut [Duration], json: bool) {
    times.sort_unstable();
    let (Some(min), Some(max)) = (times.first(), times.last()) else { return };
    let median = times[times.len() / 2];
    if json {
        println!(
            "{}",
            json!({ "answered": times.len(), "min_us": micros(*min), "median_us": micros(median), "max_us": micros(*max) })
        );
    } else {
        let count = times.len();
        println!("{count} answered, min/median/max {:.0}/{:.0}/{:.0} us", micros(*min), micros(median), micros(*max));
    }
}
