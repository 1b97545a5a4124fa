//! Two guests behind one source address work on the same files at the same time.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, serve::ServeOptions};

pub(super) const JOB: Job = Job {
    name: "faults-one-address",
    about: "two Linux clients behind one source address write records of one file by turns and make, see and remove each other's names",
    seconds: 300,
    guests: 2,
    scales: false,
    flavours: flavour::VERSIONS,
    run,
};

/// A step that both guests must reach (its name in the script's marks), and the word that lets both go on.
const STEPS: [(&str, &str); 4] = [("ready", "work"), ("written", "check"), ("checked", "remove"), ("removed", "end")];

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?))?;
    let script = include_str!("../../../interop/guest/faults-shared.sh");
    let boot =
        |name: &str, who: u32| context.boot(GuestOptions::new(name, script).mounts(&server).set("WHO", who).capture());
    let mut guests = [boot("left", 0)?, boot("right", 1)?];
    for (mark, word) in STEPS {
        for guest in &mut guests {
            guest.wait_for_mark(mark)?;
        }
        for guest in &guests {
            guest.say(word)?;
        }
    }
    for guest in guests {
        guest.finish()?;
    }
    server.finish()?;
    Ok(())
}
