//! From the command line to the library's options.

use super::{
    args::{ServeArgs, Switch},
    exports::ExportOption,
};
use rpcrdma::server::{Export, Options};

/// What the command line exports, `DIR` first.
pub(super) fn exports(args: &ServeArgs) -> Vec<ExportOption> {
    let root = args.dir.clone().map(ExportOption::root);
    root.into_iter().chain(args.export.iter().cloned()).collect()
}

impl From<&ExportOption> for Export {
    fn from(option: &ExportOption) -> Self {
        let mut export = Export::directory(option.path.clone(), &option.directory);
        if option.read_only {
            export = export.read_only();
        }
        if let Some(securities) = &option.securities {
            export = export.security(securities.iter());
        }
        option.clients.iter().fold(export, |export, client| export.allow(*client))
    }
}

/// All that the command line says of the server.
pub(super) fn of(args: &ServeArgs) -> Options {
    let mut options = Options::default();
    options.exports = exports(args).iter().map(Export::from).collect();
    options.listen = args.listen.clone();
    options.carrier = args.fabric;
    options.device = args.device.clone();
    options.mountd = args.mountd.clone();
    options.tcp = args.tcp.clone();
    options.locks = args.locks == Switch::On;
    options.lockd = args.lockd.clone();
    options.statd = args.statd.clone();
    options.nfs = args.nfs;
    options.lease = args.lease;
    options.grace = args.grace;
    options.host_locks = args.host_locks == Switch::On;
    options.delegations = args.delegations == Switch::On;
    options.sec = args.sec.clone();
    options.keytab = args.keytab.clone();
    options.principals = args.principals.clone();
    options.domain = args.domain.clone();
    options.manage_gids = args.manage_gids;
    options.read_only = args.read_only;
    options.no_root_squash = args.no_root_squash;
    options.early_answers = args.early_answers;
    options.allow = args.allow.clone();
    options.rpcbind = args.rpcbind;
    options.portmapper = args.portmapper.clone();
    options.threads = args.threads;
    options.memory = args.memory;
    options.state = args.state.clone();
    options.max_connections = args.max_connections;
    options.stall_timeout = args.stall_timeout;
    options.rpcrdma = args.rpcrdma;
    options.busy_poll = args.busy_poll;
    options.crc = !args.no_crc;
    options.metrics = args.metrics.is_some();
    options
}
