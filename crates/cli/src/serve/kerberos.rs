//! `serve --sec krb5,...`: Kerberos, by the machine's library and a keytab.
//!
//! Whatever would keep clients from being served by it keeps the server from starting. The library reads the keytab for
//! each context anew, and the file of tokens that it has seen, on threads of its own: nothing else waits for them, and
//! they act as nobody but the server's user.

use super::{exports::ExportOption, seldom::Seldom};
use crate::args::ServeArgs;
use anyhow::{Context, Result};
use metrics::counter;
use rpcrdma_env::Env;
use rpcrdma_gss::{Accounts, Gss, Kerberos};
use rpcrdma_nfsd::{Securities, Security};
use rpcrdma_oncrpc::gss::{AcceptGss, GssObserver, Refused, Work};
use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Instant,
};

/// The service whose keys are used: clients ask for tickets for `nfs@HOST`.
const SERVICE: &str = "nfs";
/// Where a machine has its keys.
const MACHINES_KEYTAB: &str = "/etc/krb5.keytab";
/// Threads that make contexts. Each may wait for a directory of users on another host.
const THREADS: usize = 4;

/// What an export takes.
pub(super) fn securities(args: &ServeArgs, export: &ExportOption) -> Securities {
    let own = export.securities.clone();
    own.unwrap_or_else(|| Securities::new(args.sec.iter().copied()))
}

/// The flavours of Kerberos that some export takes.
pub(super) fn wanted(args: &ServeArgs) -> Vec<Security> {
    let mut all: Vec<Security> =
        args.export.iter().flat_map(|export| securities(args, export).iter().collect::<Vec<_>>()).collect();
    if args.dir.is_some() {
        all.extend(&args.sec);
    }
    Securities::new(all.into_iter().filter(|one| one.is_kerberos())).iter().collect()
}

/// The same, as the command line has them.
pub(super) fn words(wanted: &[Security]) -> String {
    wanted.iter().map(|one| one.name()).collect::<Vec<_>>().join(",")
}

/// The principal by which clients ask for tickets, by the keytab; nothing where that does not tell.
pub(super) fn principal(args: &ServeArgs) -> Option<String> {
    let named = || std::env::var("KRB5_KTNAME").ok();
    let keytab = args.keytab.clone().or_else(|| named().map(|name| name.trim_start_matches("FILE:").into()));
    let all = rpcrdma_gss::principals(&keytab.unwrap_or_else(|| MACHINES_KEYTAB.into())).ok()?;
    all.into_iter().find(|principal| principal.split_once('/').is_some_and(|(kind, _)| kind == SERVICE))
}

/// Understands Kerberos, if an export takes it.
pub(super) fn start(args: &ServeArgs, env: &Env) -> Result<Option<Arc<AcceptGss>>> {
    let wanted = wanted(args);
    if wanted.is_empty() {
        return Ok(None);
    }
    let sec = || format!("--sec {}", words(&wanted));
    let gss = Gss::load().with_context(sec)?;
    let keytab = args.keytab.as_deref();
    if let Some(path) = keytab {
        // The library would only say that it has no key.
        let opened = std::fs::File::open(path);
        let is_denied = opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        let opened = opened.with_context(|| format!("--keytab {}", path.display()));
        match is_denied {
            true => opened.with_context(|| {
                let uid = rustix::process::geteuid().as_raw();
                format!("the keytab cannot be read by uid {uid}, as which the server runs: give it to that user")
            })?,
            false => opened?,
        };
    }
    let named = || match keytab {
        Some(path) => format!("--keytab {}", path.display()),
        None => "this machine's keytab (--keytab names another)".into(),
    };
    let kerberos = Kerberos::for_service(gss, SERVICE, keytab)
        .with_context(|| format!("{} has no key of nfs/HOST@REALM that can be read", named()))
        .with_context(sec)?;
    let work = Arc::new(Threads::start().context("cannot start threads for Kerberos")?);
    tracing::info!("Kerberos is taken ({}), with {}", words(&wanted), named());
    let flavour = AcceptGss::new(env, Arc::new(kerberos), Arc::new(Accounts), work);
    Ok(Some(Arc::new(flavour.with_observer(Arc::new(Told::default())))))
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that make contexts. How many jobs wait for them is bounded by who gives them.
struct Threads(Sender<Job>);

impl Threads {
    fn start() -> std::io::Result<Self> {
        let (sender, jobs) = channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..THREADS {
            let jobs: Arc<Mutex<Receiver<Job>>> = jobs.clone();
            let work = move || {
                // The guard is gone before the job begins.
                let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(job) = next() {
                    job();
                }
            };
            thread::Builder::new().name("rpcrdma-tokens".into()).spawn(work)?;
        }
        Ok(Self(sender))
    }
}

impl Work for Threads {
    fn run(&self, job: Job) {
        // Without threads the job is dropped, and its call answered that it has failed.
        let _ = self.0.send(job);
    }
}

/// Counts what happens, and tells the operator some of it.
#[derive(Default)]
struct Told {
    tokens: Seldom,
    forged: Seldom,
}

impl GssObserver for Told {
    fn made(&self, peer: SocketAddr, principal: &str) {
        counter!("rpcrdma_gss_contexts_made_total").increment(1);
        tracing::debug!(%peer, principal, "a context of Kerberos is made");
    }

    fn refused(&self, peer: SocketAddr, why: Refused<'_>) {
        let reason = why.word();
        counter!("rpcrdma_gss_refused_total", "reason" => reason).increment(1);
        match why {
            Refused::Token(failure) => match self.tokens.tell(Instant::now()) {
                Some(untold) => tracing::warn!(%peer, %failure, untold, "a context of Kerberos is refused"),
                None => tracing::debug!(%peer, %failure, "a context of Kerberos is refused"),
            },
            Refused::Header | Refused::Arguments => match self.forged.tell(Instant::now()) {
                Some(untold) => {
                    tracing::warn!(%peer, reason, untold, "a call is not what its client has signed: it is refused");
                }
                None => tracing::debug!(%peer, reason, "a call is not what its client has signed"),
            },
            _ => tracing::debug!(%peer, reason, "a call by RPCSEC_GSS is refused"),
        }
    }

    fn dropped(&self, peer: SocketAddr) {
        counter!("rpcrdma_gss_calls_dropped_total").increment(1);
        tracing::debug!(%peer, "a call by RPCSEC_GSS is dropped: its number was seen, or is too old");
    }
}

#[cfg(test)]
mod tests {
    use super::{super::given::tests::args, *};

    fn told(more: &[&str]) -> String {
        words(&wanted(&args(more)))
    }

    #[test]
    fn kerberos_is_wanted_where_an_export_takes_it() {
        assert_eq!(told(&[]), "");
        assert_eq!(told(&["--sec", "krb5p,sys,krb5,krb5p"]), "krb5p,krb5");
        assert_eq!(told(&["--export", "/srv,sec=krb5i:sys"]), "krb5i");
        assert_eq!(told(&["--sec", "krb5", "--export", "/srv,sec=sys"]), "krb5");
        let both = args(&["--sec", "krb5,sys", "--export", "/srv", "--export", "/lab,sec=krb5p"]);
        let of = |at: usize| securities(&both, &both.export[at]).iter().map(Security::name).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec!["krb5", "sys"], vec!["krb5p"]));
    }

    #[test]
    fn jobs_are_done_by_threads_of_their_own() {
        let (threads, (done, answers)) = (Threads::start().unwrap(), channel());
        for _ in 0..2 * THREADS {
            let done = done.clone();
            threads.run(Box::new(move || done.send(thread::current().name().map(str::to_owned)).unwrap()));
        }
        for _ in 0..2 * THREADS {
            assert_eq!(answers.recv().unwrap().as_deref(), Some("rpcrdma-tokens"));
        }
    }
}
