//! `rpcrdma ping`: NULL calls, one after the other.

use crate::{args::PingArgs, names, session::Sessions, transports::Options};
use anyhow::{Context, Result};
use rpcrdma::{Event, Negotiated, NoVersion2, Observer, Versions};
use rpcrdma_nfs::v3;
use rpcrdma_oncrpc::{Client, ClientTransport, NoAuth};
use serde_json::json;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What the last connection can do.
#[derive(Clone, Default)]
struct Agreed {
    /// RDMA Reads that the server may have under way.
    ird: u16,
    negotiated: Option<Negotiated>,
    /// There was no answer to the question for version 2, on a connection before.
    unanswered: bool,
}

impl Agreed {
    /// What became of version 2, if there is something to tell.
    fn version_2(&self, asked_for: Versions) -> Option<&'static str> {
        let negotiated = self.negotiated.as_ref()?;
        match (negotiated.version, asked_for) {
            (1, _) if negotiated.refused.is_some() => Some("refused"),
            (1, _) if self.unanswered => Some("unanswered"),
            // It is remembered from an earlier command.
            (1, Versions::Auto) => Some("not asked for"),
            (1, _) => None,
            _ => Some("spoken"),
        }
    }
}

/// Keeps what the last connection was told when it was made, and what was negotiated on it.
#[derive(Default)]
struct LastConnected(Mutex<Agreed>);

impl LastConnected {
    fn agreed(&self) -> Agreed {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for LastConnected {
    fn event(&self, peer: SocketAddr, event: &Event) {
        let mut agreed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Connected { ird, .. } => (agreed.ird, agreed.negotiated) = (*ird, None),
            Event::Negotiated(negotiated) => agreed.negotiated = Some(negotiated.clone()),
            Event::NoVersion2(why) => agreed.unanswered = *why != NoVersion2::Refused,
            _ => {}
        }
        drop(agreed);
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
    let client = Client::new(transport.clone(), Arc::new(NoAuth), v3::PROGRAM, args.url.program_version());
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
                    // Versions are settled with the first answer.
                    if args.verbose && times.is_empty() {
                        describe(&*transport, connected, &observer.agreed(), args.url.rpcrdma, args.client.json);
                    }
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
        Some(source) => {
            let error = rpcrdma_nfs_client::Error::Call { procedure: "NULL", source };
            Err(error).with_context(|| names::escaped(args.url.host.as_bytes()))
        }
        None => Ok(()),
    }
}

/// What the connection can do.
fn describe(transport: &dyn ClientTransport, connected: Duration, agreed: &Agreed, asked_for: Versions, json: bool) {
    let (server, limits, time) = (transport.server(), transport.limits(), micros(connected));
    if json {
        let mut line = json!({
            "server": server.to_string(), "connect_us": time,
            "max_call": limits.max_call, "max_reply": limits.max_reply,
        });
        if let Some(negotiated) = &agreed.negotiated {
            line["rpcrdma"] = negotiated.version.into();
            line["call_inline"] = negotiated.link.send_inline.into();
            line["reply_inline"] = negotiated.link.receive_inline.into();
            line["remote_invalidation"] = negotiated.link.send_invalidates.into();
            line["ird"] = agreed.ird.into();
            line["version_2"] = agreed.version_2(asked_for).into();
            if let Some(peer) = &negotiated.peer {
                line["properties"] = json!({
                    "send_size": peer.send_size, "receive_size": peer.receive_size,
                    "segment_size": peer.segment_size, "segment_count": peer.segment_count,
                    "reverse": format!("{:?}", peer.reverse).to_lowercase(),
                });
            }
        }
        println!("{line}");
        return;
    }
    println!("connected to {server} in {time:.0} us");
    println!("largest call {} octets, largest reply {} octets", limits.max_call, limits.max_reply);
    if let Some(Negotiated { version, link, peer, .. }) = &agreed.negotiated {
        let (send, receive) = (link.send_inline, link.receive_inline);
        println!("RPC-over-RDMA version {version}, inline up to {send} octets there and {receive} back");
        match agreed.version_2(asked_for) {
            Some("refused") => println!("version 2 was asked for and refused"),
            Some("unanswered") => println!("version 2 was asked for, which was not answered"),
            Some("not asked for") => println!(
                "version 2 was not asked for: it is remembered that this server has none; rpcrdma=2 in the URL asks again"
            ),
            _ => {}
        }
        if let Some(peer) = peer {
            println!(
                "the server sends up to {} octets at once, receives {}, takes {} segments of up to {} octets",
                peer.send_size, peer.receive_size, peer.segment_count, peer.segment_size
            );
        }
        println!(
            "remote invalidation {}; the server may have {} RDMA Reads under way",
            if link.send_invalidates { "agreed" } else { "not offered by the server" },
            agreed.ird
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
