//! The identity of the caller at a server: who vouches for it, and with Kerberos for how long.

use rpcrdma::client::{NfsUrl, command::Identity};
use rpcrdma_oncrpc::{ClientFlavour as _, gss::AboutContext};
use serde_json::{Value, json};
use std::io::{self, Write};

/// The identity with which calls are made.
pub(super) enum Who {
    /// The client states it.
    Sys { uid: u32, gid: u32 },
    /// A ticket proves it. The context is that of the first call.
    Kerberos(AboutContext),
    /// There is no context, because no call was answered.
    Nobody,
}

impl Who {
    pub(super) fn of(identity: &Identity) -> Self {
        match identity {
            Identity::Sys(auth) => auth.caller().map_or(Self::Nobody, |(uid, gid)| Self::Sys { uid, gid }),
            Identity::Kerberos(auth) => auth.about().map_or(Self::Nobody, Self::Kerberos),
        }
    }

    /// As an object.
    pub(super) fn object(&self, url: &NfsUrl) -> Value {
        let flavour = url.security.name();
        match self {
            Self::Sys { uid, gid } => json!({ "sec": flavour, "uid": uid, "gid": gid }),
            Self::Kerberos(about) => json!({
                "sec": flavour, "principal": &*about.principal, "server": &*about.acceptor,
                "left_s": about.left.map(|left| left.as_secs()), "window": about.window,
            }),
            Self::Nobody => json!({ "sec": flavour }),
        }
    }

    /// For people.
    pub(super) fn tell(&self, url: &NfsUrl, out: &mut impl Write) -> io::Result<()> {
        let flavour = url.security.name();
        match self {
            Self::Sys { uid, gid } => {
                writeln!(out, "called as uid {uid}, gid {gid}, which the server has to believe (sec={flavour})")
            }
            Self::Kerberos(AboutContext { principal, acceptor, left, .. }) => {
                let covered = match flavour {
                    "krb5i" => "calls and replies are protected from changes",
                    "krb5p" => "calls and replies are encrypted and protected from changes",
                    _ => "calls and replies themselves are not protected",
                };
                write!(out, "called as {principal}, the server is {acceptor} (sec={flavour}: {covered})")?;
                match left {
                    Some(left) => writeln!(out, "; the ticket lasts {} more", time(left.as_secs())),
                    None => writeln!(out),
                }
            }
            Self::Nobody => Ok(()),
        }
    }
}

/// Hours and minutes, or seconds where there are few.
fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {} min", minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_two_units() {
        assert_eq!([59, 60, 3599, 36_061].map(time), ["59 s", "1 min", "59 min", "10 h 1 min"]);
    }
}
