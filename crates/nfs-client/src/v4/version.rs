//! Agrees with a server on a minor version: the highest that both have.

use super::{Error, Inner, Nfs4, Options, held::Opens};
use rpcrdma_env::Env;
use rpcrdma_nfs::v4::{ClientName, Op, Status, VERIFIER_BYTES, Verifier};
use rpcrdma_oncrpc::Client;
use std::sync::{Arc, Weak};

/// The most characters of the host's name in the client's name: enough to recognise the host, and far below the limit
/// of a name.
const MAX_HOST_CHARACTERS: usize = 128;

impl Nfs4 {
    /// Registers a client with a server, and makes a session if the minor version has sessions. `client` must call
    /// [`PROGRAM`](rpcrdma_nfs::v4::PROGRAM), [`VERSION`](rpcrdma_nfs::v4::VERSION) of that server.
    ///
    /// # Errors
    /// [`Error::NoVersion4`] and [`Error::NoMinor`] if version 3 may be tried instead; also the errors of all calls.
    pub async fn connect(client: Client, env: &Env, options: Options) -> Result<Self, Error> {
        let (lowest, highest) = (*options.minors.start(), *options.minors.end());
        for minor in (lowest..=highest.min(rpcrdma_nfs::v4::MAX_MINOR)).rev() {
            let inner =
                Arc::new_cyclic(|me| Inner::new(client.clone(), env.clone(), options.clone(), minor, me.clone()));
            if let Some(callbacks) = &options.callbacks {
                callbacks.attach(&inner);
            }
            match inner.ready(Op::ExchangeId).await {
                Ok(_) => {
                    inner.describe().await?;
                    tracing::debug!(minor, server = %client.transport().server(), "a minor version was agreed upon");
                    return Ok(Self { inner });
                }
                Err(error) if error.status() == Some(Status::MINOR_VERS_MISMATCH) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoMinor { lowest })
    }
}

impl Inner {
    fn new(client: Client, env: Env, options: Options, minor: u32, me: Weak<Inner>) -> Self {
        let mut verifier = [0; VERIFIER_BYTES];
        env.random.fill(&mut verifier);
        // Random, so that two clients of one host have different names, and neither takes over the other's state.
        let host: String = options.host.chars().take(MAX_HOST_CHARACTERS).collect();
        let name = format!("rpcrdma {host} {:016x}{:016x}", env.random.next_u64(), env.random.next_u64());
        Self {
            client,
            env,
            options,
            minor,
            name: ClientName::from(name.as_str()),
            verifier: Verifier(verifier),
            standing: Default::default(),
            repair: Default::default(),
            me,
            owners: Default::default(),
            opens: Opens::of(host),
            duties: Default::default(),
            awaited: Default::default(),
            server: Default::default(),
        }
    }
}
