//! Two Linux clients want the same names at the same time: each name has one winner.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, serve::ServeOptions};
use anyhow::bail;

pub(super) const JOB: Job = Job {
    name: "client-races",
    about: "O_EXCL, mkdir and link races of two clients: each name has one winner, who knows it",
    seconds: 400,
    guests: 2,
    scales: false,
    flavours: flavour::VERSIONS,
    run,
};

/// The races, by their names in the script's marks.
const RACES: [&str; 3] = ["create", "mkdir", "link"];

/// How many names each race has, as in the script.
const NAMES: u64 = 150;

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?))?;
    let script = include_str!("../../../interop/guest/excl.sh");
    let boot = |name: &str| context.boot(GuestOptions::new(name, script).mounts(&server).set("WHO", name).capture());
    let mut guests = [boot("left")?, boot("right")?];
    for race in RACES {
        for guest in &mut guests {
            guest.wait_for_mark(race)?;
        }
        for guest in &guests {
            guest.say(race)?;
        }
    }
    let [left, right] = guests;
    let (left, right) = (left.finish()?, right.finish()?);
    for race in RACES {
        let won = |ended: &crate::interop::guest::Ended| -> anyhow::Result<u64> {
            Ok(ended.read(&format!("won-{race}"))?.trim().parse()?)
        };
        let (left, right) = (won(&left)?, won(&right)?);
        context.note(format!("{race}: {left} to {right}"));
        if left + right != NAMES {
            bail!(
                "{race}: one client says that it won {left}, the other {right}, of {NAMES}; see {}",
                context.dir().display()
            );
        }
    }
    server.finish()?;
    Ok(())
}
