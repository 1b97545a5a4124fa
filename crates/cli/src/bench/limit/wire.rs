//! How an end of this measurement waits for the other: in the system call that reads, or, as a server of many
//! connections has to, by epoll or as a task of tokio. A server that is built on one of these cannot save what it adds.

use super::frame;
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use rustix::{
    event::epoll::{self, EventFlags},
    fd::OwnedFd,
};
use std::{
    future::Future,
    io::{self, IoSlice, Read as _},
    net::TcpStream,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How an end waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::bench) enum Waits {
    /// The thread waits in the system call that reads, as in programs with a thread for each connection
    #[default]
    Read,
    /// The thread waits by epoll, and then reads
    Epoll,
    /// A task of tokio waits
    Tokio,
}

impl Waits {
    pub(super) fn name(self) -> &'static str {
        match self {
            Waits::Read => "read",
            Waits::Epoll => "epoll",
            Waits::Tokio => "tokio",
        }
    }
}

/// One end of the connection.
pub(super) enum Wire {
    Read(TcpStream),
    Epoll { stream: TcpStream, epoll: OwnedFd },
    Tokio(tokio::net::TcpStream),
}

impl Wire {
    /// An end of the connection, which must be made within [`run`].
    pub(super) fn new(stream: TcpStream, waits: Waits) -> Result<Self> {
        Ok(match waits {
            Waits::Read => Self::Read(stream),
            Waits::Epoll => {
                let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                epoll::add(&epoll, &stream, epoll::EventData::new_u64(0), EventFlags::IN)?;
                Self::Epoll { stream, epoll }
            }
            Waits::Tokio => {
                stream.set_nonblocking(true)?;
                Self::Tokio(tokio::net::TcpStream::from_std(stream)?)
            }
        })
    }

    /// Receives something; 0 bytes if the other end has gone.
    pub(super) async fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Read(stream) => stream.read(room),
            Self::Epoll { stream, epoll } => {
                let mut events = [epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 1];
                epoll::wait(&*epoll, &mut events, None)?;
                stream.read(room)
            }
            Self::Tokio(stream) => stream.read(room).await,
        }
    }

    /// Sends all of it, with as few system calls as the kernel allows.
    pub(super) async fn send(&mut self, slices: &mut [IoSlice<'_>]) -> Result<()> {
        match self {
            Self::Read(stream) | Self::Epoll { stream, .. } => frame::send_all(stream, slices),
            Self::Tokio(stream) => {
                let mut slices = slices;
                while !slices.is_empty() {
                    let sent = stream.write_vectored(slices).await?;
                    IoSlice::advance_slices(&mut slices, sent);
                }
                Ok(())
            }
        }
    }
}

/// Runs one end.
pub(super) fn run<T>(end: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_io().build().context("starting a runtime")?.block_on(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    #[test]
    fn all_ways_to_wait_bring_the_same() {
        for waits in [Waits::Read, Waits::Epoll, Waits::Tokio] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let sending = thread::spawn(move || {
                run(async {
                    let mut wire = Wire::new(server, waits)?;
                    let mut ask = [0; 3];
                    assert_eq!(wire.receive(&mut ask).await?, 3);
                    wire.send(&mut [IoSlice::new(b"an"), IoSlice::new(b"swer")]).await
                })
                .unwrap();
            });
            run(async {
                let mut wire = Wire::new(client, waits)?;
                wire.send(&mut [IoSlice::new(b"ask")]).await?;
                let (mut came, mut room) = (Vec::new(), [0; 16]);
                loop {
                    match wire.receive(&mut room).await? {
                        0 => break,
                        octets => came.extend_from_slice(&room[..octets]),
                    }
                }
                assert_eq!(came, b"answer", "{waits:?}");
                Ok(())
            })
            .unwrap();
            sending.join().unwrap();
        }
    }
}
