//! How a guest's kernel ended: its last words, and whether the kernel or this harness is at fault.
//!
//! The whole report stands in `console.log`: a kernel that panics writes everything there, whatever its log level is.
//! The end is missing in `dmesg.log`, which a program in the guest writes. After a panic, `panic=-1` and QEMU's
//! `-no-reboot` make QEMU end at once, with status 0.

use super::kernel_log::without_time;
use std::{fs, path::Path};

/// The file in a guest's folder with what its kernel wrote to the console.
pub(super) const CONSOLE_LOG: &str = "console.log";

/// The file where QEMU writes how its processor was reset.
pub(super) const RESETS_LOG: &str = "resets.log";

/// How the first line of a crash begins.
const BEGINNINGS: [&str; 9] = [
    "BUG: ",
    "kernel BUG at ",
    "kernel tried to execute ",
    "general protection fault",
    "Oops: ",
    "divide error",
    "invalid opcode",
    "traps: PANIC: ",
    PANIC,
];

/// The line that ends each crash: `oops=panic` makes every oops end in a panic.
const PANIC: &str = "Kernel panic - not syncing: ";

/// Panics for which the guest is at fault, and not its kernel.
const OURS: [(&str, &str); 4] = [
    ("deadlocked on memory", "the guest has too little memory"),
    ("Out of memory", "the guest has too little memory"),
    ("Attempted to kill init", "the guest's first program ended"),
    ("Unable to mount root", "the guest has no initramfs"),
];

/// How the kernel reports a process that it killed because memory ran out.
const KILLED: &str = "Out of memory: Killed process ";

/// How many frames of the call trace are shown.
const FRAMES: usize = 12;

/// A crash of a guest's kernel.
#[derive(Debug)]
pub(super) struct Crash {
    /// Its first line, such as `BUG: kernel NULL pointer dereference, address: 0000000000000008`.
    pub(super) first: String,
    /// Where the processor was, such as `RIP: 0010:siw_rx_data+0x12/0x34 [siw]`, if the kernel says it.
    pub(super) place: Option<String>,
    /// The lines in between that say what happened, then the first frames of the call trace.
    others: Vec<String>,
}

impl Crash {
    /// Finds a crash in the text of a console.
    pub(super) fn find(console: &str) -> Option<Self> {
        let lines: Vec<_> = console.lines().map(without_time).collect();
        lines.iter().find(|line| line.starts_with(PANIC))?;
        let begin = lines.iter().position(|line| is_told(line))?;
        let said = &lines[begin..];
        let place = said.iter().find(|line| line.starts_with("RIP: 0010:")).map(|line| (*line).to_owned());
        let mut others: Vec<_> =
            said.iter().skip(1).filter(|line| is_told(line)).map(|&line| line.to_owned()).collect();
        others.extend(said.iter().find(|line| line.starts_with("CPU: ")).map(|&line| line.to_owned()));
        others.extend(place.clone());
        others.extend(trace(said));
        Some(Self { first: said[0].to_owned(), place, others })
    }

    /// The last words, a line each.
    pub(super) fn words(&self) -> String {
        let lines = std::iter::once(&self.first).chain(&self.others);
        lines.map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
    }

    /// The first line and the place, in one line.
    pub(super) fn in_short(&self) -> String {
        match &self.place {
            Some(place) => format!("{} ({place})", self.first),
            None => self.first.clone(),
        }
    }

    /// Why the crash is not Linux's fault, if so: the guest was too small, or its first program ended. Every other
    /// crash is the kernel's own fault, because no byte that arrives may crash a kernel.
    pub(super) fn our_fault(&self) -> Option<&'static str> {
        let panics = std::iter::once(&self.first).chain(&self.others).filter(|line| line.starts_with(PANIC));
        let known = |line: &String| OURS.iter().find(|(part, _)| line.contains(part)).map(|(_, reason)| *reason);
        panics.filter_map(known).next()
    }
}

/// Whether a line says what happened.
fn is_told(line: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| line.starts_with(beginning))
}

/// The first frames of the first call trace. The kernel marks frames with `?` that may be left from earlier calls: they
/// are shown only if there are no others.
fn trace(said: &[&str]) -> Vec<String> {
    let Some(begin) = said.iter().position(|line| *line == "Call Trace:") else { return Vec::new() };
    let frames: Vec<_> = said[begin + 1..]
        .iter()
        .filter(|line| !line.starts_with('<'))
        .take_while(|line| line.trim_start_matches("? ").split(' ').next().is_some_and(|frame| frame.contains("+0x")))
        .collect();
    let certain: Vec<_> = frames.iter().filter(|frame| !frame.starts_with('?')).copied().collect();
    let shown = if certain.is_empty() { frames } else { certain };
    let shown = shown.into_iter().take(FRAMES).map(|frame| format!("  {frame}"));
    std::iter::once("Call Trace:".to_owned()).chain(shown).collect()
}

/// How a guest's kernel ended, as far as the files in its folder show; `None` if they show no bad end.
pub(super) fn last_words(guest: &Path) -> Option<String> {
    let console = text(guest, CONSOLE_LOG);
    if let Some(crash) = Crash::find(&console) {
        let blame = crash.our_fault().map(|reason| format!(" ({reason})")).unwrap_or_default();
        return Some(format!("its kernel crashed{blame}:\n{}\n", crash.words()));
    }
    if text(guest, RESETS_LOG).contains("Triple fault") {
        return Some("its kernel crashed without a word (triple fault)".to_owned());
    }
    let killed = console.lines().map(without_time).find(|line| line.starts_with(KILLED))?;
    Some(format!("the guest has too little memory: {killed}"))
}

/// The crash of a guest's kernel in a job's folder, and the guest's name.
pub(super) fn of_job(job: &Path) -> Option<(String, Crash)> {
    let guests = fs::read_dir(job).into_iter().flatten().flatten();
    let mut crashes = guests.filter_map(|guest| {
        let crash = Crash::find(&text(&guest.path(), CONSOLE_LOG))?;
        Some((guest.file_name().to_string_lossy().into_owned(), crash))
    });
    crashes.next()
}

fn text(guest: &Path, file: &str) -> String {
    fs::read(guest.join(file)).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{CONSOLE_LOG, Crash, RESETS_LOG, last_words, of_job};
    use std::fs;

    /// The console of a guest whose kernel jumped to a wrong address, shortened.
    const OOPS: &str = "guest: up after 6.18 s
[   16.829074] kernel tried to execute NX-protected page - exploit attempt? (uid: 0)
[   16.829759] BUG: unable to handle page fault for address: ffff8eef41894780
[   16.829936] #PF: supervisor instruction fetch in kernel mode
[   16.830487] Oops: Oops: 0011 [#1] PREEMPT SMP NOPTI
[   16.830835] CPU: 0 UID: 0 PID: 197 Comm: dd Tainted: G           OE      6.12.117+deb12-amd64 #1  Debian 6.12.117-1~deb12u1
[   16.831547] RIP: 0010:0xffff8eef41894780
[   16.834421] Code: 00 00 9e 2b d5 bb 78 c2 96 5c 20 ac c5 8c ff ff ff ff 00
[   16.837270] Call Trace:
[   16.837719]  <TASK>
[   16.837866]  ? apparmor_file_permission+0x75/0x190
[   16.838102]  ? security_file_permission+0x45/0x100
[   16.843750]  </TASK>
[   16.843839] Modules linked in: siw(OE) libcrc32c nfsv3
[   16.845106] RIP: 0010:0xffff8eef41894780
[   16.846753] Kernel panic - not syncing: Fatal exception
[   16.847356] Kernel Offset: 0xb800000 from 0xffffffff81000000
";

    /// The console of a guest that crashed on request, shortened.
    const ASKED: &str = "[   12.242888] sysrq: Trigger a crash
[   12.243800] Kernel panic - not syncing: sysrq triggered crash
[   12.244211] CPU: 0 UID: 0 PID: 174 Comm: bash Tainted: G           OE      6.12.117+deb12-amd64 #1
[   12.244944] Call Trace:
[   12.245435]  <TASK>
[   12.245578]  panic+0x344/0x3a0
[   12.245843]  ? _printk+0x64/0x80
[   12.245915]  sysrq_handle_crash+0x1a/0x20
[   12.252588] RIP: 0033:0x7f3c701b7350
[   12.254168]  </TASK>
";

    #[test]
    fn an_oops_is_told_with_its_place_and_its_frames() {
        let crash = Crash::find(OOPS).unwrap();
        assert_eq!(crash.first, "kernel tried to execute NX-protected page - exploit attempt? (uid: 0)");
        assert_eq!(crash.place.as_deref(), Some("RIP: 0010:0xffff8eef41894780"));
        let words = crash.words();
        for told in [
            "BUG: unable to handle page fault",
            "Oops: Oops: 0011 [#1]",
            "Comm: dd",
            "Call Trace:",
            "? apparmor_file_permission+0x75",
            "not syncing: Fatal exception",
        ] {
            assert!(words.contains(told), "{told} is missing: {words}");
        }
        for left_out in ["Code:", "</TASK>", "Modules linked in", "guest: up"] {
            assert!(!words.contains(left_out), "{left_out}: {words}");
        }
        assert_eq!(words.matches("RIP:").count(), 1);
        assert_eq!(crash.our_fault(), None);
    }

    #[test]
    fn frames_that_may_be_remains_are_left_out_where_others_are() {
        let words = Crash::find(ASKED).unwrap().words();
        assert!(words.contains("sysrq_handle_crash+0x1a") && !words.contains("_printk"), "{words}");
        assert!(!words.contains("0033:"), "a program's place is not the kernel's: {words}");
    }

    #[test]
    fn a_long_trace_is_cut() {
        let frames: String = (0..40).map(|number| format!("[ 1.0]  frame_{number}+0x1/0x2 [siw]\n")).collect();
        let words = Crash::find(&format!("Kernel panic - not syncing: x\nCall Trace:\n{frames}")).unwrap().words();
        assert!(words.contains("frame_11+") && !words.contains("frame_12+"), "{words}");
    }

    #[test]
    fn a_kernel_that_lives_has_not_crashed() {
        assert!(
            Crash::find("guest: up after 8 s\n[ 1.0] BUG: workqueue lockup\n[ 2.0] reboot: Power down\n").is_none()
        );
    }

    #[test]
    fn want_of_memory_is_our_fault() {
        for said in [
            "Kernel panic - not syncing: System is deadlocked on memory",
            "Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled",
            "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009",
        ] {
            assert!(Crash::find(&format!("[ 1.0] {said}\n")).unwrap().our_fault().is_some(), "{said}");
        }
    }

    #[test]
    fn the_last_words_come_from_the_guests_files() {
        let job = tempfile::tempdir().unwrap();
        let guest = job.path().join("client");
        fs::create_dir(&guest).unwrap();
        assert!(last_words(&guest).is_none() && of_job(job.path()).is_none());
        fs::write(guest.join(CONSOLE_LOG), "[ 9.0] Out of memory: Killed process 200 (xtask)\n").unwrap();
        assert!(last_words(&guest).unwrap().contains("too little memory: Out of memory: Killed process 200"));
        fs::write(guest.join(RESETS_LOG), "Triple fault\n").unwrap();
        assert!(last_words(&guest).unwrap().contains("triple fault"));
        fs::write(guest.join(CONSOLE_LOG), ASKED).unwrap();
        assert!(last_words(&guest).unwrap().contains("sysrq_handle_crash"));
        let (name, crash) = of_job(job.path()).unwrap();
        assert_eq!(
            (name.as_str(), crash.in_short().as_str()),
            ("client", "Kernel panic - not syncing: sysrq triggered crash")
        );
    }
}
