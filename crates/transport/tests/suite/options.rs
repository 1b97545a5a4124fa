//! The options of a suite's client and server, with the versions from the test's root file.

use crate::VERSIONS;
use rpcrdma_transport::{ClientOptions, ServerOptions};

pub(crate) fn client_options() -> ClientOptions {
    let mut options = ClientOptions::default();
    options.versions = VERSIONS.0;
    options
}

pub(crate) fn server_options() -> ServerOptions {
    let mut options = ServerOptions::default();
    options.versions = VERSIONS.1;
    options
}
