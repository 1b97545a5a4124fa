//! Failures of Kerberos, and the messages to users.

use crate::{
    common::{Server, contents, fails, rpcrdma, run},
    house::{House, WAYS, with_users},
    start,
};
use rpcrdma_gss::realm::{Realm, within};
use std::{
    fs,
    io::{BufRead, Read},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Checks the message of `ls`, which must fail, in each version and over each transport.
fn told(house: &House, sec: &str, path: &str, parts: &[&str]) {
    for way in WAYS {
        let text = fails(1, ["ls", &house.url(way, sec, path)]);
        assert!(parts.iter().all(|part| text.contains(part)), "{way}: {text}");
    }
}

/// proves: OPS-SEC-d
#[test]
fn another_flavour_is_named_where_the_urls_is_not_taken() {
    within("trouble::another_flavour_is_named_where_the_urls_is_not_taken", |realm| {
        with_users(realm);
        let below = realm.folder().join("below");
        fs::create_dir_all(below.join("in")).unwrap();
        fs::write(below.join("in/here"), "").unwrap();
        fs::create_dir_all(realm.folder().join("served/lab")).unwrap();
        let export = format!("{},pseudo=/lab,sec=krb5p", below.display());
        let house = House::new(realm, "127.0.0.78", "krb5i,sys", &["--export", &export]);
        for way in WAYS {
            let text = fails(1, ["ls", &house.url(way, "krb5", "")]);
            // In version 4.0 the client cannot ask for the root's flavours.
            let is_guess = way.contains("4.0") && text.contains("does not take krb5 there: another may do (sec=sys");
            let is_told = text.contains("takes krb5i, sys there, and not krb5: write sec=krb5i in the URL");
            assert!(is_guess || is_told, "{way}: {text}");
        }
        // The path leads from one export into another that accepts fewer flavours.
        for way in WAYS.into_iter().filter(|way| !way.contains("version=3")) {
            let by_sys = house.url(way, "krb5i", "lab/in").replace("&sec=krb5i&principal=nfs/localhost", "");
            let text = fails(1, ["ls", &by_sys]);
            assert!(
                text.contains("takes krb5p there, and not sys: write sec=krb5p in the URL (`kinit`"),
                "{way}: {text}"
            );
            let text = fails(1, ["ls", &house.url(way, "krb5i", "lab/in")]);
            assert!(text.contains("takes krb5p there, and not krb5i: write sec=krb5p in the URL:"), "{way}: {text}");
            // With a flavour that the second export accepts, a client gets there, although the root does not accept it.
            assert_eq!(run(["ls", &house.url(way, "krb5p", "lab/in")]).stdout, b"here\n", "{way}");
        }
    });
}

/// proves: OPS-SEC-d
#[test]
fn a_server_without_kerberos_is_named_as_such() {
    within("trouble::a_server_without_kerberos_is_named_as_such", |realm| {
        with_users(realm);
        let house = House::new(realm, "127.0.0.79", "sys", &[]);
        for way in WAYS {
            let text = fails(1, ["ls", &house.url(way, "krb5", "")]);
            let of_3 = text.contains("takes sys there, and not krb5: write sec=sys in the URL");
            assert!(of_3 || text.contains("knows no Kerberos, which sec=krb5 in the URL asks for"), "{way}: {text}");
        }
    });
}

/// proves: OPS-SEC-e
#[test]
fn tickets_that_do_not_do_are_told_with_what_to_do() {
    within("trouble::tickets_that_do_not_do_are_told_with_what_to_do", |realm| {
        with_users(realm);
        let house = House::new(realm, "127.0.0.80", "krb5i", &[]);
        // Without principal= the client asks the KDC for a principal with the address.
        for way in WAYS {
            let url = house.url(way, "krb5i", "").replace("&principal=nfs/localhost", "");
            let text = fails(1, ["ls", &url]);
            assert!(
                text.contains("the KDC does not know nfs/127.0.0.80") && text.contains("addprinc"),
                "{way}: {text}"
            );
        }
        let tickets = realm.folder().join("tickets");
        fs::remove_file(&tickets).unwrap();
        told(&house, "krb5i", "", &["No Kerberos credentials available", "get a ticket with `kinit`"]);
        realm.kinit("alice", "1s").unwrap();
        sleep(Duration::from_millis(2100));
        told(&house, "krb5i", "", &["the ticket has expired: get another with `kinit`"]);
        realm.kinit("alice", "10m").unwrap();
        told(&house, "krb5i", "none", &["ERR_NOENT"]);
        // The KDC has a new key for the service, which the server lacks.
        realm.administer("cpw -randkey nfs/localhost").unwrap();
        realm.kinit("alice", "10m").unwrap();
        told(&house, "krb5i", "", &["the server's keytab lacks the key that the KDC has for nfs/localhost"]);
    });
}

/// proves: OPS-SEC-e
#[test]
fn a_kdc_that_is_down_is_named() {
    within("trouble::a_kdc_that_is_down_is_named", |realm| {
        with_users(realm);
        let house = House::new(realm, "127.0.0.81", "krb5i", &[]);
        let url = house.url(WAYS[3], "krb5i", "");
        run(["ls", &url]);
        let [up, down] = realm.hide_kdc().unwrap();
        // A client with a ticket for the service needs no KDC.
        run(["ls", &url]);
        // A client without one does.
        let settings = realm.folder().join("krb5.conf");
        fs::write(&settings, &up).unwrap();
        realm.kinit("alice", "10m").unwrap();
        fs::write(&settings, &down).unwrap();
        told(&house, "krb5i", "", &["no KDC of the realm answers", "port 88"]);
    });
}

/// A file that is no library hides the system's library.
///
/// proves: OPS-SEC-e
#[test]
fn a_missing_library_is_named_with_its_package() {
    within("trouble::a_missing_library_is_named_with_its_package", |realm| {
        let folder = realm.folder().join("lib");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("libgssapi_krb5.so.2"), "none").unwrap();
        let mut command = rpcrdma();
        command.env("LD_LIBRARY_PATH", &folder).args(["ls", "nfs://127.0.0.1:9/?sec=krb5p"]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("sec=krb5p: MIT's Kerberos library cannot be loaded"), "{text}");
        assert!(text.contains("Debian: libgssapi-krb5-2"), "{text}");
    });
}

/// proves: OPS-SEC-f
#[test]
fn a_server_that_restarts_costs_time_and_another_context() {
    within("trouble::a_server_that_restarts_costs_time_and_another_context", |realm| {
        with_users(realm);
        let mut house = House::new(realm, "127.0.0.82", "krb5p", &["--lease", "3", "--grace", "3"]);
        let (local, octets) = (realm.folder().join("local"), contents(24 << 20));
        fs::write(&local, &octets).unwrap();
        for (number, way) in [WAYS[3], WAYS[4], WAYS[7]].into_iter().enumerate() {
            let name = format!("copy-{number}");
            let begin = Instant::now();
            let arguments =
                ["put", "--inplace", local.to_str().unwrap(), &house.url(way, "krb5p", &name)].map(str::to_owned);
            let mut put = rpcrdma().args(arguments).stderr(Stdio::piped()).spawn().unwrap();
            let copy = house.served.join(&name);
            while fs::metadata(&copy).map_or(0, |file| file.len()) < 2 << 20 {
                assert!(put.try_wait().unwrap().is_none(), "{way}: it is over before the server could be killed");
                sleep(Duration::from_millis(1));
            }
            house.server = again(realm, house.server, "127.0.0.82");
            let output = put.wait_with_output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{way} after {:?}: {error}", begin.elapsed());
            assert!(fs::read(&copy).unwrap() == octets, "{way}");
            assert!(begin.elapsed() < Duration::from_secs(20), "{way} took {:?}", begin.elapsed());
        }
    });
}

/// The same server, killed and started again at its ports.
fn again(realm: &Realm, server: Server, host: &str) -> Server {
    let (rdma, mount) = (server.rdma.clone(), server.mount.clone());
    server.kill();
    let (scratch, tcp, keytab) = (realm.folder(), format!("{host}:2049"), realm.keytab());
    let own = ["--tcp", &tcp, "--sec", "krb5p", "--keytab", keytab.to_str().unwrap(), "--lease", "3", "--grace", "3"];
    Server::start_at(&scratch.join("served"), &scratch.join("state"), &rdma, &mount, &own)
}

/// A `cat` whose output the test reads slowly: so many bytes in each tenth of a second.
struct Slow {
    cat: Child,
    octets: Vec<u8>,
}

impl Slow {
    fn new(url: &str) -> Self {
        let cat = rpcrdma().args(["cat", url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { cat, octets: Vec::new() }
    }

    fn take_for(&mut self, time: Duration, each: usize) {
        let (begin, mut buffer) = (Instant::now(), vec![0; each]);
        while begin.elapsed() < time {
            let len = self.cat.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
            self.octets.extend_from_slice(&buffer[..len]);
            sleep(Duration::from_millis(100));
        }
    }

    /// Its whole output, its exit code, and its messages.
    fn finish(mut self) -> (Vec<u8>, Option<i32>, String) {
        self.cat.stdout.as_mut().unwrap().read_to_end(&mut self.octets).unwrap();
        let output = self.cat.wait_with_output().unwrap();
        (self.octets, output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// proves: OPS-SEC-g
#[test]
fn a_ticket_that_ends_in_a_copy_is_renewed_or_the_end_is_clear() {
    within("trouble::a_ticket_that_ends_in_a_copy_is_renewed_or_the_end_is_clear", |realm| {
        with_users(realm);
        let house = House::new(realm, "127.0.0.83", "krb5i", &[]);
        let octets = contents(64 << 20);
        fs::write(house.served.join("file"), &octets).unwrap();
        for way in [WAYS[0], WAYS[3], WAYS[5]] {
            realm.kinit("alice", "6s").unwrap();
            let mut slow = Slow::new(&house.url(way, "krb5i", "file"));
            slow.take_for(Duration::from_secs(3), 64 << 10);
            realm.kinit("alice", "10m").unwrap();
            slow.take_for(Duration::from_secs(6), 64 << 10);
            let (came, code, error) = slow.finish();
            assert_eq!((code, came == octets), (Some(0), true), "{way}: {error}");
            // Nobody renews the ticket.
            realm.kinit("alice", "3s").unwrap();
            let mut slow = Slow::new(&house.url(way, "krb5i", "file"));
            slow.take_for(Duration::from_secs(5), 64 << 10);
            let (came, code, error) = slow.finish();
            assert!(came.len() < octets.len() && octets.starts_with(&came), "{way}");
            assert_eq!(code, Some(1), "{way}: {error}");
            assert!(error.contains("the ticket has expired: get another with `kinit`"), "{way}: {error}");
        }
    });
}

/// The keytab belongs to root, as it should, but the server does not run as root.
///
/// proves: OPS-SEC-h
#[test]
fn a_keytab_that_the_server_may_not_read_is_named() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("nothing is tested: only root can be another user");
    }
    within("trouble::a_keytab_that_the_server_may_not_read_is_named", |realm| {
        let program = realm.folder().join("rpcrdma");
        crate::common::copy_program(&program);
        let open = |path: &Path| Command::new("chmod").arg("a+rx").arg(path).status().unwrap();
        assert!([realm.folder(), &program].map(open).iter().all(|status| status.success()));
        let served = crate::common::served(realm.folder());
        let keytab = realm.keytab();
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(["serve", served.to_str().unwrap(), "--listen", "127.0.0.84:0", "--tcp", "127.0.0.84:2049"])
            .args(["--mountd", "127.0.0.1:0", "--sec", "krb5", "--keytab", keytab.to_str().unwrap()])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("--keytab") && text.contains("Permission denied"), "{text}");
        assert!(text.contains("as which the server runs"), "{text}");
        // With a keytab that it can read, the server starts.
        drop(start(realm, "127.0.0.84", "krb5", &[]));
    });
}

/// proves: OPS-SEC-i
#[test]
fn what_serve_prints_lists_what_it_serves() {
    within("trouble::what_serve_prints_lists_what_it_serves", |realm| {
        with_users(realm);
        let (served, keytab) = (crate::common::served(realm.folder()), realm.keytab());
        fs::write(served.join("here"), "").unwrap();
        for nfs in ["3,4.2", "4.1"] {
            let mut command = rpcrdma();
            command.arg("serve").arg(&served).arg("--state").arg(realm.folder().join("state"));
            command.args(["--sec", "krb5p,krb5i", "--keytab", keytab.to_str().unwrap(), "--nfs", nfs]);
            command.args(["--listen", "127.0.0.85:0", "--tcp", "127.0.0.85:2049"]);
            if nfs.contains('3') {
                command.args(["--mountd", "127.0.0.85:0"]);
            }
            let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
            let lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
            let line = lines.take(3).find(|line| line.starts_with("list with this:")).expect("a URL");
            let url = line.split('\'').nth(1).unwrap();
            assert!(url.contains("sec=krb5p&principal=nfs/localhost@"), "{url}");
            assert_eq!(run(["ls", url]).stdout, b"here\n", "{url}");
            server.kill().unwrap();
            server.wait().unwrap();
        }
    });
}
