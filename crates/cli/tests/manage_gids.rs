//! `serve --manage-gids`: callers with AUTH_SYS have the groups that the server's machine knows for them.

mod common;

use common::{Server, fails, rpcrdma, run, served};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

/// A user that every machine has, and the user's group.
const DAEMON: u32 = 1;
/// The user's groups, more than AUTH_SYS has room for; in a file that only the server sees.
const GROUPS: std::ops::Range<u32> = 5000..5040;

/// A server whose machine knows those groups.
fn start(scratch: &Path, more: &[&str]) -> Server {
    let groups = scratch.join("group");
    let known = fs::read_to_string("/etc/group").unwrap();
    let own: String = GROUPS.map(|gid| format!("group{gid}:x:{gid}:daemon\n")).collect();
    fs::write(&groups, known + &own).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/group && exec \"$@\""]).arg(&groups);
    let more = [&["--tcp", "127.0.0.1:0"][..], more].concat();
    Server::start_under(command, &served(scratch), &scratch.join("state"), &more)
}

/// A file that its group alone reads.
fn of_group(scratch: &Path, gid: u32) -> String {
    let (name, file) = (format!("of-{gid}"), served(scratch).join(format!("of-{gid}")));
    fs::write(&file, "contents").unwrap();
    chown(&file, Some(0), Some(gid)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o040)).unwrap();
    name
}

/// URLs of a file, over both transports and in each version.
fn urls(server: &Server, name: &str) -> [String; 3] {
    [server.tcp_url_3(name), server.url_3(name), server.url(name)]
}

/// proves: NFS3-ID-e
#[test]
fn groups_are_those_of_the_servers_machine() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("nothing is tested: only root can act as other users");
    }
    let scratch = tempfile::tempdir().unwrap();
    let (last, other) = (GROUPS.end - 1, 60);
    let (of_last, of_other) = (of_group(scratch.path(), last), of_group(scratch.path(), other));
    // Another group than the user's own, so that the user's group alone does not allow the access.
    let caller = format!("&uid={DAEMON}&gid=7");
    let by_claim = |url: &str| {
        let claim = format!("--groups={other}");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1", "--regid=7", &claim]).arg(rpcrdma().get_program()).args(["cat", url]);
        command.env("HOME", "/nonexistent").output().unwrap()
    };
    let plain = start(scratch.path(), &[]);
    for (of_last, of_other) in urls(&plain, &of_last).iter().zip(&urls(&plain, &of_other)) {
        let text = fails(1, ["cat", &format!("{of_last}{caller}")]);
        assert!(text.contains("ERR_ACCES"), "{text}");
        assert_eq!(by_claim(of_other).stdout, b"contents", "{of_other}: the client's word counts");
    }
    assert_eq!(plain.stop(), Some(0));
    let managed = start(scratch.path(), &["--manage-gids"]);
    for (of_last, of_other) in urls(&managed, &of_last).iter().zip(&urls(&managed, &of_other)) {
        assert_eq!(run(["cat", &format!("{of_last}{caller}")]).stdout, b"contents", "{of_last}: his fortieth group");
        let claimed = by_claim(of_other);
        let text = String::from_utf8_lossy(&claimed.stderr).into_owned();
        assert!(claimed.stdout.is_empty() && text.contains("ERR_ACCES"), "{of_other}: {text}");
    }
    assert_eq!(managed.stop(), Some(0));
}
