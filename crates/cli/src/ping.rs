//! `rpcrdma ping`: NULL calls, one after the other.

use crate::{args::PingArgs, names, session::Sessions, transports::Options};
use anyhow::{Context, Result};
use rpcrdma::{Event, Observer};
use rpcrdma_nfs::v3;
use rpcrdma_oncrpc::{Client, ClientTransport, NoAuth};
use serde_json::json;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Keeps what the last connection was told when it was made.
#[derive(Default)]
struct LastConnected(Mutex<Option<Event>>);

impl Observer for LastConnected {
    fn event(&self, peer: SocketAddr, event: &Event) {
        if let Event::Connected { .. } = event {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(event.clone());
        }
        rpcrdma::Tracing.event(peer, event);
    }
}

pub(crate) async fn run(args: PingArgs) -> Result<()> {
    let observer = Arc::new(LastConnected::default());
    let sessions = Sessions::new(Options { observer: Some(observer.clone()), ..args.client.clone().into() })?;
    let begin = Instant::now();
    let transport = sessions.transport_for(&args.url).await?;
    let connected = begin.elapsed();
    let server = transport.server();
    if args.verbose {
        let agreed = observer.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        describe(&*transport, connected, agreed.as_ref(), args.client.json);
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

/// What the connection can do.
fn describe(transport: &dyn ClientTransport, connected: Duration, agreed: Option<&Event>, json: bool) {
    let (server, limits, time) = (transport.server(), transport.limits(), micros(connected));
    let rdma = match agreed {
        Some(Event::Connected { send_inline, receive_inline, send_invalidates, ird, .. }) => {
            Some((*send_inline, *receive_inline, *send_invalidates, *ird))
        }
        _ => None,
    };
    if json {
        let mut line = json!({
            "server": server.to_string(), "connect_us": time,
            "max_call": limits.max_call, "max_reply": limits.max_reply,
        });
        if let Some((send, receive, invalidates, ird)) = rdma {
            line["rpcrdma"] = 1.into();
            line["call_inline"] = send.into();
            line["reply_inline"] = receive.into();
            line["remote_invalidation"] = invalidates.into();
            line["ird"] = ird.into();
        }
        println!("{line}");
        return;
    }
    println!("connected to {server} in {time:.0} us");
    println!("largest call {} octets, largest reply {} octets", limits.max_call, limits.max_reply);
    if let Some((send, receive, invalidates, ird)) = rdma {
        println!("RPC-over-RDMA version 1, inline up to {send} octets there and {receive} back");
        println!(
            "remote invalidation {}; the server may have {ird} RDMA Reads under way",
            if invalidates { "agreed" } else { "not offered by the server" }
        );
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
