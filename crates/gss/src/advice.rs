//! What to do about errors of Kerberos that administrators meet.

/// The number of Kerberos' first error in MIT's tables; minor statuses are these numbers as 32 bits without a sign.
const KERBEROS_ERRORS: i32 = -1_765_328_384;

/// What a user or an administrator can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// There are no tickets.
    GetTicket,
    /// The tickets have expired.
    RenewTicket,
    /// The KDC does not answer.
    ReachKdc,
    /// The KDC does not know the service.
    AddService,
    /// The server does not have the key that the KDC has.
    ExportKey,
    /// Clocks differ.
    SetClock,
    /// A ticket begins in the future, by some clock.
    SetClockOrWait,
}

/// GSS_S_CREDENTIALS_EXPIRED and GSS_S_CONTEXT_EXPIRED, in the routine's part of a major status.
const EXPIRED: [u32; 2] = [11, 12];

impl Remedy {
    /// The remedy for the statuses of the library, of this host or of the peer.
    // OPS-SEC-e, OPS-SEC-l
    fn of(major: u32, minor: u32) -> Option<Self> {
        Some(match i64::from(minor as i32) - i64::from(KERBEROS_ERRORS) {
            // The service is unknown.
            7 => Self::AddService,
            // A ticket that cannot be decrypted, that is for another service, or for whose kind or version there is no
            // key.
            31 | 35 | 44 | 45 | 144 | 181 | 230 => Self::ExportKey,
            32 => Self::RenewTicket,
            33 => Self::SetClockOrWait,
            37 => Self::SetClock,
            // No matching ticket, no cache; the library also reports both if there is no KDC to ask.
            141 | 195 => Self::GetTicket,
            156 => Self::ReachKdc,
            _ if EXPIRED.contains(&(major >> 16 & 0xff)) => Self::RenewTicket,
            _ => return None,
        })
    }

    fn text(self, principal: &str) -> String {
        match self {
            Self::GetTicket => "get a ticket with `kinit`".into(),
            Self::RenewTicket => "the ticket has expired: get another with `kinit`".into(),
            Self::ReachKdc => {
                "no KDC of the realm answers: see that it runs, that a firewall lets port 88 pass, and what krb5.conf \
                 says of the realm"
                    .into()
            }
            Self::AddService => format!(
                "the KDC does not know {principal}: name the server as the realm knows it, or add the principal \
                 (`kadmin -q \"addprinc -randkey {principal}\"`) and put its key into the server's keytab"
            ),
            Self::ExportKey => format!(
                "the server's keytab lacks the key that the KDC has for {principal}: put it there (`kadmin -q \"ktadd \
                 {principal}\"` on the server), start the server again, and get a new ticket with `kinit`"
            ),
            Self::SetClock => {
                "the clocks of this host and of the server or the KDC differ by more than five minutes: set them, by \
                 NTP"
                .into()
            }
            Self::SetClockOrWait => {
                "the ticket is not valid yet: the clock of the server or of the KDC is behind by more than five \
                 minutes, set it by NTP; or the ticket was asked for with `kinit -s`, and its time has not come"
                    .into()
            }
        }
    }
}

/// What has happened, and what to do about it. `principal` is the service's.
pub(crate) fn with_advice(text: &str, major: u32, minor: u32, principal: &str) -> String {
    match Remedy::of(major, minor) {
        Some(remedy) => format!("{text}; {}", remedy.text(principal)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_helped_is_left_as_it_is() {
        assert_eq!(with_advice("it failed", 13 << 16, 0, "nfs/server"), "it failed");
        assert_eq!(with_advice("it failed", 0, u32::MAX, "nfs/server"), "it failed");
    }

    #[test]
    fn advice_names_the_principal() {
        let minor = (KERBEROS_ERRORS + 7) as u32;
        let text = with_advice("unknown", 13 << 16, minor, "nfs/server.example");
        assert!(text.starts_with("unknown; ") && text.contains("addprinc -randkey nfs/server.example"), "{text}");
        assert_eq!(Remedy::of(11 << 16, 0), Some(Remedy::RenewTicket));
    }

    #[test]
    fn clocks_that_are_apart_are_named() {
        let told = |error: i32| with_advice("no", 13 << 16, (KERBEROS_ERRORS + error) as u32, "nfs/server");
        assert!(told(37).contains("clocks of this host and of the server or the KDC differ"), "{}", told(37));
        assert!(told(33).contains("the ticket is not valid yet"), "{}", told(33));
    }
}
