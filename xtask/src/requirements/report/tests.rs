use super::*;

fn rule(id: &str, level: Level) -> Rule {
    Rule { id: id.to_owned(), level, role: "both".to_owned(), text: "Said.".to_owned() }
}

fn exception(id: &str) -> Exception {
    Exception { id: id.to_owned(), reason: "not built".to_owned(), place: "README.md".to_owned() }
}

fn proof(ids: &[&str]) -> Proof {
    let ids = ids.iter().map(|&id| id.to_owned()).collect();
    Proof { file: "a.rs".to_owned(), line: 7, name: "holds".to_owned(), ids }
}

fn place(id: &str, in_test: bool) -> Place {
    Place { file: "b.rs".to_owned(), line: 3, code: "fn holds()".to_owned(), ids: vec![id.to_owned()], in_test }
}

fn rules() -> Vec<Rule> {
    vec![
        rule("V1-1-a", Level::Must),
        rule("V1-1-b", Level::Must),
        rule("V1-1-c", Level::Fact),
        rule("V2-1-a", Level::Must),
    ]
}

fn refused(exceptions: &[&str], tests: &[&[&str]]) -> String {
    let exceptions = exceptions.iter().map(|id| exception(id)).collect();
    let tests = tests.iter().map(|ids| proof(ids)).collect();
    match Report::new(rules(), exceptions, tests, Vec::new()) {
        Ok(_) => panic!("let through"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn counts_and_what_is_missing() {
    let places = vec![place("V1-1-b", false), place("V2-1-a", true)];
    let report = Report::new(rules(), vec![exception("V1-1-c")], vec![proof(&["V1-1-a", "V2-1-a"])], places).unwrap();
    assert_eq!(
        report.value(),
        json!({
            "documents": {
                "V1": {
                    "MUST": { "total": 2, "proven": 1, "excepted": 0, "placed": 1 },
                    "FACT": { "total": 1, "proven": 0, "excepted": 1, "placed": 0 },
                },
                "V2": { "MUST": { "total": 1, "proven": 1, "excepted": 0, "placed": 0 } },
            },
            "missing": ["V1-1-b"],
            "without_place": ["V1-1-a", "V2-1-a"],
        })
    );
    assert!(report.table().contains("Neither proven nor excepted: V1-1-b\n"), "{}", report.table());
}

#[test]
fn one_rule_and_its_tests() {
    let report =
        Report::new(rules(), vec![exception("V1-1-c")], vec![proof(&["V1-1-a"])], vec![place("V1-1-a", false)])
            .unwrap();
    assert_eq!(
        report.about("V1-1-a").unwrap(),
        "V1-1-a MUST (both): RFC 8166, section 1\n    Said.\n  in code at b.rs:3: fn holds()\n  proven by a.rs:7 holds\n"
    );
    let all = report.about("V1").unwrap();
    assert!(all.contains("  MISSING\n") && all.contains("  excepted: not built (see README.md)\n"), "{all}");
    assert!(report.about("V3").is_err());
}

#[test]
fn contradictions_are_refused() {
    assert!(refused(&[], &[&["V9-1-a"]]).starts_with("a.rs:7: holds proves V9-1-a"));
    assert!(refused(&["V9-1-a"], &[]).contains("in no catalogue"));
    assert!(refused(&["V1-1-a"], &[&["V1-1-a"]]).contains("needs no exception"));
    assert!(refused(&["V1-1-a", "V1-1-a"], &[]).contains("twice"));
}

#[test]
fn a_place_names_a_rule_that_there_is() {
    for in_test in [false, true] {
        match Report::new(rules(), Vec::new(), Vec::new(), vec![place("V9-1-a", in_test)]) {
            Ok(_) => panic!("let through"),
            Err(error) => assert_eq!(error.to_string(), "b.rs:3: V9-1-a is named, which is in no catalogue"),
        }
    }
}

#[test]
fn rules_without_a_place_are_told() {
    let report = Report::new(rules(), vec![exception("V1-1-c")], Vec::new(), vec![place("V1-1-a", false)]).unwrap();
    let told = report.without_place();
    assert!(told.starts_with("V1-1-b MUST (both) Said.\nV2-1-a MUST (both) Said.\n\n2 of 3 rules"), "{told}");
    assert!(report.about("V2-1-a").unwrap().contains("  no place in code names it\n"));
    assert!(!report.about("V1-1-c").unwrap().contains("no place"), "excepted");
}

#[test]
fn a_rule_tells_where_it_comes_from() {
    for (id, source) in [
        ("V2-4.2.1.1-h", "draft-ietf-nfsv4-rpcrdma-version-two-01, section 4.2.1.1"),
        ("V2-A.1-b", "draft-ietf-nfsv4-rpcrdma-version-two-01, section A.1"),
        ("RPC-5531-8.2-a", "RFC 5531, section 8.2"),
        ("NFS4-7530-DRC-a", "RFC 7530"),
        ("OPS-SEC-a", "a rule of this project"),
        ("NLM-6.1.4-a", "NLM, section 6.1.4"),
    ] {
        assert_eq!(rule(id, Level::Must).source(), source);
    }
}
