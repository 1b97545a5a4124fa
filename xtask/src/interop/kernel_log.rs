//! The guest's kernel log: between the beginning and the end of a job each line must be expected, with a reason.

use std::{fs, path::Path};

/// A line that may appear; `*` stands for anything.
pub(super) struct Allowed {
    pub(super) pattern: &'static str,
    /// The reason, for people who read the table or the job.
    #[allow(dead_code, reason = "written for people")]
    pub(super) reason: &'static str,
}

const fn allowed(pattern: &'static str, reason: &'static str) -> Allowed {
    Allowed { pattern, reason }
}

/// The lines that may appear in any job.
const EVERYWHERE: &[Allowed] = &[
    allowed("iwpm_register_pid: Unable to send a nlmsg*", "no iwpmd runs in the guest, and none is needed"),
    allowed("Key type * registered", "modules that come with the first mount"),
    allowed("NFS: Registering the id_resolver key type", "version 4 as a module"),
    allowed("RPC: Registered *", "transports as modules"),
    allowed("NFSD: Using *", "nfsd says how it keeps version 4 clients"),
    allowed("NFSD: starting *-second grace period*", "nfsd after its start"),
    allowed("NFSD: Unable to initialize client recovery tracking*", "the guest has no nfsdcld"),
    allowed("NFSD: no clients to reclaim, skipping NFSv4 grace period*", "version 4, unused"),
    allowed(
        "NFSD: Failed to remove expired client state directory *",
        "nfsd's own records, of clients that it has forgotten over a restart",
    ),
    allowed(
        "NFS: SECINFO: security flavor 39000* is not supported",
        "nfsd offers Kerberos, and no rpc.gssd runs in the guest",
    ),
    allowed("clocksource: *", "emulated time under load"),
    allowed("hrtimer: interrupt took *", "emulated time under load"),
    allowed("TSC found unstable*", "emulated time under load"),
    allowed("sched: *", "emulated time under load"),
    allowed("random: *", "the entropy pool"),
    allowed("loop: module loaded", "busybox looks for it"),
    allowed("* (*): drop_caches: *", "the script asked for it"),
];

/// The file in a guest's folder with the kernel's log.
pub(super) const KERNEL_LOG: &str = "dmesg.log";

/// The lines between which the log is judged; `/init` writes them.
const BEGINS: &str = "rpcrdma: the job begins";
const ENDS: &str = "rpcrdma: the job ends";

/// The lines around a warning that the kernel itself reports.
const WARNING_BEGINS: &str = "------------[ cut here ]------------";
const WARNING_ENDS: &str = "---[ end trace ";

/// The kernel's warning about memory regions that nfsd counts as in use when a connection ends during its RDMA Reads;
/// it comes once (docs/linux.md).
pub(super) const REGIONS_IN_USE: &str = "WARNING: * ib_destroy_qp_user+*";

/// The unexpected lines of a log.
pub(super) fn unexpected<'a>(log: &'a str, also: &[Allowed]) -> Vec<&'a str> {
    let lines = log.lines().skip_while(|line| !line.contains(BEGINS)).skip(1);
    let lines = lines.take_while(|line| !line.contains(ENDS));
    let is_allowed = |words: &str| {
        EVERYWHERE.iter().chain(also).any(|allowed| fits(words, allowed.pattern)) || is_split_trailer(words)
    };
    // A kernel warning has many lines: the line that names it decides about all of them.
    let mut inside_allowed = false;
    // Soft-iWARP itself has ended a connection, perhaps during RDMA Reads.
    let mut has_split = false;
    let judged = lines.filter(|line| {
        let words = without_time(line);
        has_split |= is_split_trailer(words);
        match words {
            WARNING_BEGINS => return false,
            _ if words.starts_with("WARNING: ") => {
                inside_allowed = is_allowed(words) || has_split && fits(words, REGIONS_IN_USE);
            }
            _ if words.starts_with(WARNING_ENDS) => return !std::mem::take(&mut inside_allowed),
            _ => {}
        }
        !words.is_empty() && !inside_allowed && !is_allowed(words)
    });
    judged.collect()
}

/// Whether soft-iWARP complains of a CRC that it has itself assembled wrongly. If an FPDU's padding and CRC arrive in
/// two segments, it writes the second part over the beginning of the first: the CRC that it has read then begins with
/// the last bytes of the right CRC, or only its first bytes are right. The client connects again and goes on.
/// [`Wire::judge`](super::wire::Wire::judge) checks the CRCs of the captures separately.
fn is_split_trailer(words: &str) -> bool {
    let Some(rest) = words.strip_prefix("siw: crc error. in: ") else { return false };
    let octets = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_le_bytes);
    let Some((read, rest)) = rest.split_once(", own ") else { return false };
    let (Some(read), Some(right)) = (octets(read), rest.split(',').next().and_then(octets)) else { return false };
    (1..4).any(|first| read.starts_with(&right[first..])) || read[0] == right[0]
}

/// A line without `[    1.234567] `.
pub(super) fn without_time(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((_, words)) => words.trim(),
        None => line.trim(),
    }
}

/// How often soft-iWARP, in the guests of a job in `dir`, has ended a connection because of a CRC that it had itself
/// assembled wrongly (docs/linux.md). Each time there is one connection and one Terminate too many, and only soft-iWARP
/// is at fault.
pub(super) fn split_trailers(dir: &Path) -> usize {
    let guests = fs::read_dir(dir).into_iter().flatten().flatten();
    let logs = guests.filter_map(|guest| fs::read(guest.path().join(KERNEL_LOG)).ok());
    logs.map(|log| split_trailers_of(&String::from_utf8_lossy(&log))).sum()
}

fn split_trailers_of(log: &str) -> usize {
    log.lines().filter(|line| is_split_trailer(without_time(line))).count()
}

/// Whether a text matches a pattern, in which `*` stands for anything.
pub(super) fn fits(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut open = false;
    for part in parts {
        open = true;
        if part.is_empty() {
            continue;
        }
        // The last part must end the text; an earlier part matches at its first occurrence.
        let Some(place) =
            (if pattern.ends_with(part) && rest.ends_with(part) { rest.rfind(part) } else { rest.find(part) })
        else {
            return false;
        };
        rest = &rest[place + part.len()..];
        open = false;
    }
    open || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::{KERNEL_LOG, allowed, fits, is_split_trailer, split_trailers, split_trailers_of, unexpected};

    #[test]
    fn patterns() {
        assert!(fits("siw: crc error", "siw: crc error"));
        assert!(!fits("siw: crc error.", "siw: crc error"));
        assert!(fits("siw: crc error. rcved 12", "siw: crc error*"));
        assert!(fits("nfs: server x not responding, still trying", "nfs: server * not responding, still trying"));
        assert!(fits("a b b", "a*b"));
        assert!(!fits("xa", "a*"));
        assert!(fits("1 (2): drop_caches: 3", "* (*): drop_caches: *"));
    }

    #[test]
    fn a_crc_that_soft_iwarp_split_is_told_from_a_wrong_one() {
        // Seen in real runs: each segment had two bytes of the CRC.
        assert!(is_split_trailer("siw: crc error. in: 8bd21656, own 1656bd01, op 2"));
        // The first segment had the padding and one byte; the padding and three bytes.
        assert!(is_split_trailer("siw: crc error. in: 77443322, own 44332211, op 0"));
        assert!(is_split_trailer("siw: crc error. in: 99887711, own 44332211, op 0"));
        assert!(!is_split_trailer("siw: crc error. in: 44332210, own 44332211, op 0"));
        assert!(!is_split_trailer("siw: crc error. in: 8bd21656, own 1657bd01"));
        assert!(!is_split_trailer("siw: crc error"));
        let log = "rpcrdma: the job begins\n[ 1.0] siw: crc error. in: 8bd21656, own 1656bd01, op 2\nsiw: crc error. in: 5, own 1, op 2\n";
        assert_eq!(unexpected(log, &[]), ["siw: crc error. in: 5, own 1, op 2"]);
        assert_eq!(split_trailers_of(log), 1);
        let job = tempfile::tempdir().unwrap();
        for guest in ["client", "nfsd"] {
            std::fs::create_dir(job.path().join(guest)).unwrap();
            std::fs::write(job.path().join(guest).join(KERNEL_LOG), log).unwrap();
        }
        std::fs::create_dir(job.path().join("trees")).unwrap();
        assert_eq!(split_trailers(job.path()), 2);
    }

    #[test]
    fn only_the_job_is_judged() {
        let log = "[ 1.0] boot noise\n[ 2.0] rpcrdma: the job begins\n[ 3.0] siw: oops\n[ 3.1] mine: 1\n[ 3.2] Key type a registered\n\
                   [ 4.0] rpcrdma: the job ends\n[ 5.0] later\n";
        assert_eq!(unexpected(log, &[allowed("mine: *", "")]), ["[ 3.0] siw: oops"]);
    }
    #[test]
    fn a_warning_is_judged_by_its_name() {
        let log = "rpcrdma: the job begins\n[ 1.0] ------------[ cut here ]------------\n[ 1.0] WARNING: CPU: 0 PID: 1 at a.c:1 x+0x1\n\
                   [ 1.0] RAX: 0\n[ 1.0] ---[ end trace 0 ]---\n[ 2.0] odd\n";
        assert_eq!(unexpected(log, &[allowed("WARNING: * x+*", "")]), ["[ 2.0] odd"]);
        assert_eq!(unexpected(log, &[allowed("WARNING: * y+*", "")]).len(), 4);
    }

    #[test]
    fn regions_are_in_use_when_soft_iwarp_has_ended_a_connection_itself() {
        let split = "[ 1.0] siw: crc error. in: 8bd21656, own 1656bd01, op 2\n";
        let wrong = "[ 1.0] siw: crc error. in: 5, own 1, op 2\n";
        let warning = "[ 2.0] ------------[ cut here ]------------\n\
                       [ 2.0] WARNING: CPU: 0 PID: 203 at verbs.c:2104 ib_destroy_qp_user+0x165/0x1a0 [ib_core]\n\
                       [ 2.0] RAX: 0\n[ 2.0] ---[ end trace 0 ]---\n";
        let begins = "rpcrdma: the job begins\n";
        assert_eq!(unexpected(&format!("{begins}{split}{warning}"), &[]), [""; 0]);
        // Other warnings stay unexpected, and so does this one without that reason.
        assert_eq!(unexpected(&format!("{begins}{split}{}", warning.replace("destroy", "modify")), &[]).len(), 3);
        assert_eq!(unexpected(&format!("{begins}{warning}{split}"), &[]).len(), 3);
        assert_eq!(unexpected(&format!("{begins}{wrong}{warning}"), &[]).len(), 4);
    }
}
