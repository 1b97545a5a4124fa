//! Kerberos over an RDMA device: our server with `verbs` and Linux's client, both in the guest, over soft-RoCE.

use super::{
    Job,
    client_kerberos::{SCRIPT, SERVICES},
    verbs,
};
use crate::interop::{context::Context, flavour, realm::Realm};

pub(super) const JOB: Job = Job {
    name: "verbs-kerberos",
    about: "soft-RoCE: Linux's client with our server by verbs, with krb5, krb5i and krb5p, in versions 3 and 4.2",
    seconds: 400,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// The guest's own address, at which the server listens.
const ADDRESS: &str = "10.0.2.15";

const SERVE: &str = include_str!("../../../interop/guest/verbs-kerberos.sh");

fn run(context: &Context) -> anyhow::Result<()> {
    let realm = Realm::on_loopback(context)?;
    let again = ["kill $GSSD", verbs::FRESH, "NFS_VERSION=4.2"].join("\n");
    let script = [SERVE, SCRIPT, &again, SCRIPT, "kill $GSSD", "stop"].join("\n");
    let guest = verbs::named(context, "client", "rxe", &script);
    let guest = realm.guest(guest).set("SERVER_ADDRESS", ADDRESS).set("SERVICES", SERVICES.join(" "));
    context.boot(guest)?.finish()?;
    Ok(())
}
