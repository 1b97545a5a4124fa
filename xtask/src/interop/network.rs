//! A network for one job: its server and each of its guests have an address, all reach each other, and no address is
//! translated.
//!
//! A namespace holds a bridge, which is the host's side (10.77.0.1), and a tap device for each guest (10.77.0.2,
//! 10.77.0.3, ...). Root only. Each of the jobs that run at the same time has its own network, with the same addresses.

use super::{
    context::Context,
    guest::{Guest, GuestOptions},
    namespace::{self, Namespace, ip},
    nfsd::{Nfsd, NfsdOptions},
    serve::{ServeOptions, Server},
};
use anyhow::{Context as _, ensure};
use std::{
    cell::Cell,
    io::Read as _,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

/// The bytes of a packet on Ethernet.
pub(super) const ETHERNET: u16 = 1500;

/// The host's address. Guests have the next ones.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// How many bits of an address name the network.
const PREFIX: u8 = 24;

/// The most guests that can have an address.
const GUESTS: u8 = 250;

/// The host's interface in the namespace.
const BRIDGE: &str = "host";

/// How long the host waits for a guest that it calls.
const PATIENCE: Duration = Duration::from_secs(2);

/// A guest's place in a network, for QEMU's options and the guest's script.
pub(super) struct Tap {
    /// The namespace where QEMU runs.
    pub(super) namespace: String,
    /// The device's name, in the namespace.
    pub(super) device: String,
    /// The guest's Ethernet address.
    pub(super) mac: String,
    /// The guest's address.
    pub(super) address: Ipv4Addr,
    /// The longest packet.
    pub(super) mtu: u16,
}

/// Where a server listens, if not on this machine's loopback.
pub(super) struct Place {
    /// The namespace where it runs.
    pub(super) namespace: String,
    /// Its address.
    pub(super) address: Ipv4Addr,
}

/// A network. Dropping the value removes it.
pub(super) struct Network<'a> {
    context: &'a Context<'a>,
    namespace: Namespace,
    mtu: u16,
    guests: Cell<u8>,
}

impl<'a> Network<'a> {
    /// Makes a network whose packets have at most so many bytes.
    pub(super) fn new(context: &'a Context<'a>, mtu: u16) -> anyhow::Result<Self> {
        let made = Self { context, namespace: Namespace::new(context)?, mtu, guests: Cell::new(0) };
        made.make().context("a network of the job's own could not be made")?;
        Ok(made)
    }

    fn make(&self) -> anyhow::Result<()> {
        self.ip(&["link", "add", BRIDGE, "mtu", &self.mtu.to_string(), "type", "bridge", "forward_delay", "0"])?;
        self.ip(&["addr", "add", &format!("{HOST}/{PREFIX}"), "dev", BRIDGE])?;
        self.ip(&["link", "set", BRIDGE, "up"])
    }

    fn ip(&self, arguments: &[&str]) -> anyhow::Result<()> {
        ip(&[&["-n", self.namespace.name()], arguments].concat()).map(drop)
    }

    /// The host's address.
    pub(super) fn host(&self) -> Ipv4Addr {
        HOST
    }

    /// The address of the guest that boots first (0), second (1), and so on; also before it boots.
    pub(super) fn address(&self, guest: u8) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(HOST) + 1 + u32::from(guest))
    }

    /// The network's namespace.
    pub(super) fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// Gives the programs on the host's side of the network a file that replaces a file of `/etc`.
    pub(super) fn place(&self, file: &str, text: &str) -> anyhow::Result<()> {
        self.namespace.place(file, text)
    }

    /// Boots a guest with the next address; its script finds it in `ADDRESS`.
    pub(super) fn guest(&self, options: GuestOptions) -> anyhow::Result<Guest> {
        let number = self.guests.get();
        ensure!(number < GUESTS, "{GUESTS} guests are all that a network has addresses for");
        self.guests.set(number + 1);
        let device = device(number);
        self.ip(&["tuntap", "add", "dev", &device, "mode", "tap"]).context("a guest's network device")?;
        self.ip(&["link", "set", &device, "mtu", &self.mtu.to_string(), "master", BRIDGE, "up"])?;
        self.again(number, options)
    }

    /// Boots a guest in the place of one that was killed, with its address: a machine that comes back. The guest needs
    /// a new name, because its folder has this name.
    pub(super) fn again(&self, number: u8, options: GuestOptions) -> anyhow::Result<Guest> {
        let tap = Tap {
            namespace: self.namespace.name().to_owned(),
            device: device(number),
            mac: format!("52:54:00:4d:00:{:02x}", number + 2),
            address: self.address(number),
            mtu: self.mtu,
        };
        let options = options.set("HOST", HOST).set("ADDRESS", tap.address).set("PREFIX", PREFIX);
        self.context.boot(options.on(tap))
    }

    /// Starts `rpcrdma serve` at the host's address and waits until it is ready. [`GuestOptions::mounts`] tells a guest
    /// this address.
    pub(super) fn serve(&self, options: ServeOptions) -> anyhow::Result<Server> {
        let place = Place { namespace: self.namespace.name().to_owned(), address: HOST };
        self.context.serve(options.at(place))
    }

    /// Boots a guest with Linux's nfsd at the next address, and waits until it serves.
    pub(super) fn nfsd(&self, options: NfsdOptions) -> anyhow::Result<Nfsd> {
        Nfsd::boot_in(self.context, self, options)
    }

    /// The `rpcrdma` command on the host's side of this network, for arguments and [`Context::run`].
    pub(super) fn rpcrdma(&self) -> Command {
        let mut command = self.command(self.context.program());
        command.env("XDG_CACHE_HOME", self.context.cache());
        command
    }

    /// Any program on the host's side of this network.
    pub(super) fn command(&self, program: &Path) -> Command {
        namespace::command(Some(self.namespace.name()), program)
    }

    /// Connects to a guest from the host, and reads until the guest ends the connection.
    pub(super) fn call(&self, address: Ipv4Addr, port: u16) -> anyhow::Result<String> {
        namespace::inside(Some(self.namespace.name()), || {
            let address = SocketAddr::from((address, port));
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| address.to_string())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut said = String::new();
            stream.read_to_string(&mut said).with_context(|| address.to_string())?;
            Ok(said)
        })
    }

    /// Plugs a guest's cable in or pulls it (the first guest is 0); TCP at either end gets no notice.
    pub(super) fn plug(&self, guest: u8, plugged: bool) -> anyhow::Result<()> {
        self.ip(&["link", "set", &device(guest), if plugged { "up" } else { "down" }])
    }
}

fn device(guest: u8) -> String {
    format!("guest{guest}")
}
