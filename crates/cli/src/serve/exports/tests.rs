//! Options of exports, alone and together.

use super::*;

fn parse(text: &str) -> Result<ExportOption, String> {
    ExportOption::parse(text.as_ref()).map_err(|error| error.to_string())
}

#[test]
fn an_export_has_a_name_and_limits() {
    let plain = parse("/srv//data/").unwrap();
    assert_eq!((plain.directory.to_str(), &plain.path[..]), (Some("/srv//data/"), &b"/srv/data"[..]));
    assert!(!plain.read_only && plain.clients.is_empty());
    let full = parse("data,pseudo=/a//b,ro,clients=10.0.0.0/8,clients=2001:db8::1").unwrap();
    assert_eq!((full.directory.to_str(), &full.path[..], full.read_only), (Some("data"), &b"/a/b"[..], true));
    let clients: Vec<_> = full.clients.iter().map(ToString::to_string).collect();
    assert_eq!(clients, ["10.0.0.0/8", "2001:db8::1/128"]);
    assert_eq!(parse("/srv,pseudo=/").unwrap().path, b"/");
    assert_eq!(full.securities, None);
    let own = parse("/srv,sec=krb5p:sys").unwrap().securities.unwrap();
    assert_eq!(own.iter().collect::<Vec<_>>(), [Security::Krb5p, Security::Sys]);
    let no_text = ExportOption::parse(OsStr::from_bytes(b"/srv/\xff")).unwrap();
    assert_eq!(no_text.path, b"/srv/\xff");
}

#[test]
fn what_is_wrong_with_an_option_is_named() {
    let long = format!("/srv,pseudo=/{}", "n".repeat(256));
    let longest = format!("/srv,pseudo={}", format!("/{}", "n".repeat(255)).repeat(4));
    for (text, part) in [
        ("", "no directory stands before the first comma"),
        (",ro", "no directory stands before the first comma"),
        ("/srv,rw", "\"rw\" is not an option of an export"),
        ("/srv,", "\"\" is not an option of an export"),
        ("/srv,ro=1", "\"ro=1\" is not an option"),
        ("/srv,pseudo", "\"pseudo\" is not an option"),
        ("/srv,pseudo=/a,pseudo=/b", "twice"),
        ("/srv,pseudo=a", "pseudo=a: the path that clients see must begin with a slash"),
        ("/srv,pseudo=/a/../b", "pseudo=/a/../b: \"..\" is not a name"),
        ("srv", "\"srv\" cannot be the name by which clients see it"),
        ("./srv", "such as pseudo=/data"),
        ("/srv,clients=10.0.0.0/33", "clients=10.0.0.0/33: write an address or ADDRESS/PREFIX"),
        ("/srv,clients=", "clients=: write an address"),
        ("/srv,sec=", "sec=: flavours are sys, krb5, krb5i and krb5p"),
        ("/srv,sec=krb5:none", "sec=krb5:none: flavours are"),
        ("/srv,sec=krb5,sec=sys", "twice: write sec=krb5p:krb5i"),
        (&long, "longer than 255 bytes"),
    ] {
        let told = parse(text).expect_err(text);
        assert!(told.contains(part), "{text}: {told}");
    }
    assert_eq!(parse(&longest).unwrap().path.len(), MAX_PATH_BYTES);
    assert!(parse(&format!("{longest}/n")).unwrap_err().contains("longer than 1024 bytes"));
    assert!(parse(&format!("/srv,pseudo=/{}", "n".repeat(255))).is_ok());
}
