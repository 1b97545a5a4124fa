//! Linux's client against our server, one script of the guest for each subject: names, files, users, processes.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    guest::{Ended, GuestOptions},
    serve::{ServeOptions, Server},
    wire::Wire,
};
use anyhow::bail;
use std::{fs, os::unix::fs::PermissionsExt as _};

pub(super) const NAMES: Job = Job {
    name: "client-names",
    about: "folders of 10,000 entries, deep paths, names of 255 bytes, odd bytes",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::VERSIONS,
    run: names,
};

pub(super) const FILES: Job = Job {
    name: "client-files",
    about: "truncate, holes, beyond 4 GiB, append, rename and unlink of open files, O_EXCL, links, times, modes, df",
    seconds: 200,
    guests: 1,
    scales: false,
    flavours: flavour::WITH_TCP,
    run: files,
};

pub(super) const USERS: Job = Job {
    name: "client-users",
    about: "permissions of two users: files, groups, folders, the sticky bit, chown",
    seconds: 200,
    guests: 1,
    scales: false,
    flavours: flavour::VERSIONS,
    run: users,
};

pub(super) const PROCESSES: Job = Job {
    name: "client-processes",
    about: "several processes at once: files, renames, links, appends, direct I/O",
    seconds: 400,
    guests: 1,
    scales: false,
    flavours: flavour::WITH_TCP,
    run: processes,
};

/// Serves a folder and runs a script in a guest that mounts it.
fn run(
    context: &Context,
    script: &str,
    prepare: impl FnOnce(&Server) -> anyhow::Result<()>,
    variables: &[(&str, String)],
) -> anyhow::Result<(Server, Ended)> {
    let export = context.folder("export")?;
    // The umask may have removed bits from mkdir's mode.
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    let server = context.serve(ServeOptions::new(export))?;
    prepare(&server)?;
    let guest = GuestOptions::new("client", script).mounts(&server).set("MOUNT_OPTIONS", "").capture();
    let guest = variables.iter().fold(guest, |guest, (name, value)| guest.set(name, value));
    let ended = context.boot(guest)?.finish()?;
    context.note(Wire::read(context, &ended.wire())?.in_short());
    Ok((server, ended))
}

/// Entries in the folder that the host makes, and in the folder that the guest makes. In version 4, Linux needs three
/// calls to make a file (OPEN, SETATTR, CLOSE), which is slow in an emulated guest.
const MANY: usize = 10_000;
const MANY_4: usize = 3_000;

fn names(context: &Context) -> anyhow::Result<()> {
    let many = if context.flavour().is_version_4() { MANY_4 } else { MANY };
    let prepare = |server: &Server| -> anyhow::Result<()> {
        let folder = server.export().join("hosts");
        fs::create_dir(&folder)?;
        for number in 0..many {
            fs::write(folder.join(format!("made by the host {number}")), [])?;
        }
        Ok(())
    };
    let (server, _) =
        run(context, include_str!("../../../interop/guest/names.sh"), prepare, &[("ENTRIES", many.to_string())])?;
    server.finish()?;
    Ok(())
}

fn files(context: &Context) -> anyhow::Result<()> {
    let (server, ended) = run(context, include_str!("../../../interop/guest/files.sh"), |_| Ok(()), &[])?;
    // Compares what df and statfs said with the file system on the host: free space changes while others use it.
    let here = rustix::fs::statvfs(server.export())?;
    let said = ended.read("statfs")?;
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [_, block, blocks, _, available, files, _] = numbers[..] else { bail!("statfs said {said:?}") };
    let (total, total_here) = (block * blocks, here.f_frsize * here.f_blocks);
    let (free, free_here) = (block * available, here.f_frsize * here.f_bavail);
    if total.abs_diff(total_here) > block || files != here.f_files || free.abs_diff(free_here) > total_here / 10 {
        bail!(
            "statfs said {total} bytes, {free} available, {files} files; the file system has {total_here}, {free_here}, {}",
            here.f_files
        );
    }
    server.finish()?;
    Ok(())
}

fn users(context: &Context) -> anyhow::Result<()> {
    let (server, _) = run(context, include_str!("../../../interop/guest/users.sh"), |_| Ok(()), &[])?;
    server.finish()?;
    Ok(())
}

fn processes(context: &Context) -> anyhow::Result<()> {
    let (server, _) = run(context, include_str!("../../../interop/guest/processes.sh"), |_| Ok(()), &[])?;
    server.finish()?;
    Ok(())
}
