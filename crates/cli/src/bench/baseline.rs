//! The speed of plain TCP between two processes on this machine, to compare other figures with.
//!
//! This process starts itself once more as the peer, which sends. Each part has a connection of its own, whose first
//! byte says what the peer must do; closing it ends the part.

use super::{
    affinity::{stay_on, two_processors},
    cpu::CpuMeter,
    load::Sample,
    report::Report,
};
use anyhow::{Context, Result, bail};
use std::{
    ffi::OsStr,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A request: about an NFS call.
const REQUEST_BYTES: usize = 128;
/// The peer shall answer each request with a block.
const ANSWER: u8 = b'A';
/// The peer shall send blocks without end.
const STREAM: u8 = b'S';
/// How long the peer may take to start.
const START: Duration = Duration::from_secs(10);

/// Another process of this measurement, which ends with it in any case.
pub(super) struct Peer(pub(super) Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this program once more, as the other process of a measurement; with `apart`, on a processor each.
pub(super) fn start_peer(arguments: &[&OsStr], apart: bool) -> Result<Peer> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.arg("bench").args(arguments);
    if apart {
        let [own, others] = two_processors()?;
        command.args(["--cpu", &others.to_string()]);
        stay_on(own)?;
    }
    Ok(Peer(command.stdin(Stdio::null()).spawn().context("starting the other process")?))
}

/// Measures requests and the stream, each for `time`; with `apart`, on a processor each.
pub(super) fn measure(block: usize, time: Duration, apart: bool) -> Result<[Report; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")?;
    listener.set_nonblocking(true)?;
    let (at, octets) = (listener.local_addr()?.to_string(), block.to_string());
    let arguments = ["--baseline-peer", &at, "--block", &octets].map(OsStr::new);
    let mut peer = start_peer(&arguments, apart)?;
    let meter = CpuMeter::new(Some(peer.0.id()))?;
    let mut part = |kind: u8, op: &'static str, receive: fn(&mut TcpStream, &mut [u8]) -> Result<()>| {
        let mut stream = accept(&listener, &mut peer.0)?;
        stream.write_all(&[kind])?;
        let mut octets = vec![0; block];
        let mut sample = Sample::new();
        let begin = Instant::now();
        let cpu = meter.start()?;
        let mut last = begin;
        while last - begin < time {
            receive(&mut stream, &mut octets)?;
            let now = Instant::now();
            sample.record(now - last, block as u64);
            last = now;
        }
        let (cpu_s, server_cpu_s) = cpu.elapsed(&meter)?;
        let block = u32::try_from(block).ok();
        let elapsed = last - begin;
        let (rpcrdma, nfs, connections) = (None, None, 1);
        anyhow::Ok(Report { op, block, depth: 1, elapsed, sample, cpu_s, server_cpu_s, rpcrdma, nfs, connections })
    };
    let request = part(ANSWER, "baseline_request", |stream, octets| {
        stream.write_all(&[0; REQUEST_BYTES])?;
        Ok(stream.read_exact(octets)?)
    })?;
    let stream = part(STREAM, "baseline_stream", |stream, octets| Ok(stream.read_exact(octets)?))?;
    Ok([stream, request])
}

/// The connection of the other process.
pub(super) fn accept(listener: &TcpListener, peer: &mut Child) -> Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = peer.try_wait()? {
            bail!("the other process has ended: {status}");
        }
        if begin.elapsed() > START {
            bail!("the other process does not answer");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The other process.
pub(super) fn peer(address: SocketAddr, block: usize, cpu: Option<usize>) -> Result<()> {
    cpu.map(stay_on).transpose()?;
    let octets = vec![1; block];
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        // A part ends when the other side closes its connection.
        let mut request = [0; REQUEST_BYTES];
        while (kind == [STREAM] || stream.read_exact(&mut request).is_ok()) && stream.write_all(&octets).is_ok() {}
    }
    Ok(())
}
