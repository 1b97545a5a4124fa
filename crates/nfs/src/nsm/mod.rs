//! NSM version 1, the status monitor: a host that has restarted notifies those with which it had locks (program
//! 100024).
//!
//! NFS version 3 locks by NLM, whose locks end with the host that holds them. Each host has a state number, odd while
//! it is up, which changes with each restart. SM_NOTIFY carries it, with the name by which the other host knows the
//! sender. The other procedures are for a host's own lockd, which asks its statd to watch others.
//!
//! It has no binding to RPC-over-RDMA and travels over TCP and UDP.

use bytes::Bytes;
use rpcrdma_oncrpc::ReplyShape;

/// The program number of NSM.
pub const PROGRAM: u32 = 100_024;
/// Its version.
pub const VERSION: u32 = 1;
/// The longest name of a host, in octets (`SM_MAXSTRLEN`).
pub const MAX_NAME_BYTES: usize = 1024;
/// What a lockd gets back with a notice, in octets.
pub const PRIVATE_BYTES: usize = 16;

/// Procedures by number.
pub mod procedure {
    /// Does nothing.
    pub const NULL: u32 = 0;
    /// Asks whether a host is monitored.
    pub const STAT: u32 = 1;
    /// Asks that a host be monitored, for a program of the same machine.
    pub const MONITOR: u32 = 2;
    /// Takes that back.
    pub const UNMONITOR: u32 = 3;
    /// Takes back all that a program has asked for.
    pub const UNMONITOR_ALL: u32 = 4;
    /// Makes the monitor behave as if its host had restarted.
    pub const SIMULATE_CRASH: u32 = 5;
    /// Says that a host has restarted.
    pub const NOTIFY: u32 = 6;

    /// The names that the protocol gives them, by number.
    pub const NAMES: [&str; 7] =
        ["NULL", "SM_STAT", "SM_MON", "SM_UNMON", "SM_UNMON_ALL", "SM_SIMU_CRASH", "SM_NOTIFY"];

    /// Whether executing a procedure twice does no harm. A state that a host has told already says nothing new.
    pub(super) const fn is_repeatable(procedure: u32) -> bool {
        matches!(procedure, NULL | STAT | NOTIFY)
    }
}

xdr_bytes! {
    /// The name of a host: any octets.
    pub struct HostName: MAX_NAME_BYTES, copied;
}

xdr_fixed! {
    /// Octets that a lockd wants to get back: only this lockd understands them.
    pub struct Private: PRIVATE_BYTES;
}

xdr_enum! {
    /// Whether the request was carried out.
    pub enum Outcome: "result of NSM" {
        /// It was.
        Succeeded = 0,
        /// It was not.
        Failed = 1,
    }
}

xdr_struct! {
    /// SM_STAT: asks whether this host is monitored.
    pub struct Stat {
        /// The host that is asked about.
        pub name: HostName,
    }

    /// What SM_STAT and SM_MON return.
    pub struct StatReply {
        /// Whether the host is, or will be, monitored.
        pub outcome: Outcome,
        /// The state number of the monitor that answers.
        pub state: i32,
    }

    /// The program of the same machine that asks, and the procedure to call in it.
    pub struct Asker {
        /// Its host.
        pub host: HostName,
        /// The program.
        pub program: u32,
        /// Its version.
        pub version: u32,
        /// The procedure that is called.
        pub procedure: u32,
    }

    /// SM_MON: asks that a host be monitored.
    pub struct Monitor {
        /// The host to monitor.
        pub name: HostName,
        /// The program to notify.
        pub asker: Asker,
        /// What to send with the notice.
        pub private: Private,
    }

    /// SM_UNMON: takes SM_MON back.
    pub struct Unmonitor {
        /// The host to monitor no longer.
        pub name: HostName,
        /// The program that had asked for the notice.
        pub asker: Asker,
    }

    /// SM_UNMON_ALL: takes back all that a program has asked for.
    pub struct UnmonitorAll {
        /// The program that had asked for the notices.
        pub asker: Asker,
    }

    /// What SM_UNMON and SM_UNMON_ALL return.
    pub struct State {
        /// The state number of the monitor that answers.
        pub state: i32,
    }

    /// SM_NOTIFY: a host has restarted.
    pub struct Notify {
        /// The host's name, as the notified host knows it.
        pub name: HostName,
        /// Its state number now.
        pub state: i32,
    }
}

/// SM_SIMU_CRASH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimulateCrash;

impl rpcrdma_xdr::Encode for SimulateCrash {
    fn encode(&self, _: &mut rpcrdma_xdr::Encoder) {}
}

impl rpcrdma_xdr::Decode for SimulateCrash {
    fn decode(_: &mut rpcrdma_xdr::Decoder) -> Result<Self, rpcrdma_xdr::DecodeError> {
        Ok(Self)
    }
}

calls! {
    PROGRAM, VERSION, procedure::is_repeatable;
    Stat, procedure::STAT, StatReply, ReplyShape::inline(8);
    Monitor, procedure::MONITOR, StatReply, ReplyShape::inline(8);
    Unmonitor, procedure::UNMONITOR, State, ReplyShape::inline(4);
    UnmonitorAll, procedure::UNMONITOR_ALL, State, ReplyShape::inline(4);
    SimulateCrash, procedure::SIMULATE_CRASH, (), ReplyShape::inline(0);
    Notify, procedure::NOTIFY, (), ReplyShape::inline(0);
}

/// Whether two names may be those of one host. Letters of either case are equal, and a host may give its name with its
/// domain at one time and without it at another: Linux sends both after a restart.
pub fn is_same_host(one: &[u8], other: &[u8]) -> bool {
    let first_label = |name: &'_ [u8]| name.iter().position(|octet| *octet == b'.');
    match (first_label(one), first_label(other)) {
        // Addresses have dots, too, and no domain.
        // NSM-1-d
        (Some(end), None) if !is_address(one) => one.get(..end).is_some_and(|label| label.eq_ignore_ascii_case(other)),
        (None, Some(end)) if !is_address(other) => {
            other.get(..end).is_some_and(|label| label.eq_ignore_ascii_case(one))
        }
        _ => one.eq_ignore_ascii_case(other),
    }
}

fn is_address(name: &[u8]) -> bool {
    name.iter().all(|octet| octet.is_ascii_digit() || *octet == b'.')
}

/// The encoded arguments of a notice.
pub fn notice(name: &[u8], state: u32) -> Bytes {
    let mut encoder = rpcrdma_xdr::Encoder::new();
    rpcrdma_xdr::Encode::encode(&Notify { name: HostName::from(name), state: state as i32 }, &mut encoder);
    encoder.finish().to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Draw, Sample};
    use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};

    fn encoded(value: &impl Encode) -> Bytes {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        encoder.finish().to_bytes()
    }

    fn decoded<T: Decode>(octets: Bytes) -> Result<T, rpcrdma_xdr::DecodeError> {
        let mut decoder = Decoder::new(Stream::from(octets));
        let value = T::decode(&mut decoder)?;
        decoder.finish().map(|()| value)
    }

    /// proves: NSM-1-a
    #[test]
    fn a_notice_is_the_name_and_the_state() {
        let octets = notice(b"host1", 7);
        assert_eq!(&octets[..], b"\0\0\0\x05host1\0\0\0\0\0\0\x07");
        assert_eq!(decoded(octets), Ok(Notify { name: "host1".into(), state: 7 }));
        let reply = StatReply { outcome: Outcome::Failed, state: 3 };
        assert_eq!(&encoded(&reply)[..], b"\0\0\0\x01\0\0\0\x03");
    }

    #[test]
    fn what_is_written_is_read_again_and_cut_messages_are_not() {
        fn round<T: Sample + Encode + Decode + PartialEq + std::fmt::Debug>(draw: &mut Draw) {
            for _ in 0..50 {
                let value = T::sample(draw);
                let octets = encoded(&value);
                for end in 0..octets.len() {
                    assert!(decoded::<T>(octets.slice(..end)).is_err(), "{value:?} cut at {end}");
                }
                assert_eq!(decoded::<T>(octets).as_ref(), Ok(&value));
            }
        }
        let draw = &mut Draw::new(5);
        round::<Stat>(draw);
        round::<StatReply>(draw);
        round::<Monitor>(draw);
        round::<Unmonitor>(draw);
        round::<UnmonitorAll>(draw);
        round::<State>(draw);
        round::<Notify>(draw);
    }

    #[test]
    fn a_name_has_1024_octets_at_most() {
        let name = |octets: usize| {
            let mut encoder = Encoder::new();
            encoder.opaque(&vec![b'a'; octets]);
            encoder.u32(1);
            decoded::<Notify>(encoder.finish().to_bytes())
        };
        assert!(name(MAX_NAME_BYTES).is_ok());
        assert!(name(MAX_NAME_BYTES + 1).is_err());
    }

    #[test]
    fn a_host_is_the_same_with_and_without_its_domain() {
        for (one, other) in [("a", "a"), ("a", "A"), ("a.example.org", "a"), ("A", "a.example"), ("", "")] {
            assert!(is_same_host(one.as_bytes(), other.as_bytes()), "{one} {other}");
        }
        for (one, other) in [
            ("a", "b"),
            ("a.example.org", "a.example.com"),
            ("a", "ab.example.org"),
            ("192", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.2"),
            ("a", ""),
            ("a.b", "a.b.c"),
        ] {
            assert!(!is_same_host(one.as_bytes(), other.as_bytes()), "{one} {other}");
            assert!(!is_same_host(other.as_bytes(), one.as_bytes()), "{other} {one}");
        }
    }
}
