//! OPEN understands exactly the arguments that the server lists.

use super::{create, create_with, on_each, open_with, to_open};
use crate::nfs4::{attributes::tests::value, testing::TestClient};
use rpcrdma_nfs::v4::{
    Attribute, Bitmap, FileAttributes, Name, OpenArguments, StateId, Status, Value, Verifier,
    ops::{Claim, CreateExclusive, CreateHow, DelegateCurrent, DelegationKind, Open},
};

fn arguments(client: &TestClient) -> OpenArguments {
    let Value::OpenArguments(arguments) = value(client, &client.walk("").unwrap(), Attribute::OpenArguments) else {
        panic!("another attribute")
    };
    arguments
}

fn has(set: &Bitmap, number: u32) -> bool {
    set.iter().any(|has| has == number)
}

/// proves: NFS4-9754-4-a
#[test]
fn what_is_told_to_be_understood_is_and_nothing_else() {
    on_each(|server| {
        let client = server.client("a");
        let told = arguments(&client);
        let (file, state) = create(&client, "f", "o");
        assert_eq!(super::close(&client, &file, state), Status::OK);
        for access in 1..=3u32 {
            for deny in 0..=3u32 {
                assert!(has(&told.share_access, access) && has(&told.share_deny, deny));
                let (file, state) = super::open(&client, "f", "o", access, deny).unwrap();
                assert_eq!(super::close(&client, &file, state), Status::OK);
            }
        }
        assert!(!has(&told.share_access, 0) && super::open(&client, "f", "o", 0, 0).is_err());
        assert!(!has(&told.share_deny, 4) && super::open(&client, "f", "o", 1, 4).is_err());
        let current = DelegateCurrent { delegation: StateId::ANONYMOUS, name: Name::from("f") };
        let claims = [
            Claim::Null(Name::from("f")),
            Claim::Previous(DelegationKind::None),
            Claim::DelegateCurrent(current),
            Claim::DelegatePrevious(Name::from("f")),
            Claim::Handle,
            Claim::DelegateCurrentHandle(StateId::ANONYMOUS),
            Claim::DelegatePreviousHandle,
        ];
        for (number, claim) in (0..).zip(claims) {
            let to_root = matches!(claim, Claim::Null(_) | Claim::DelegateCurrent(_) | Claim::DelegatePrevious(_));
            let open = Open { claim, ..to_open(&client, "f", "o", 1, 0) };
            let status = if to_root {
                open_with(&client, open).map_or_else(|status| status, |_| Status::OK)
            } else {
                client.on(&file, rpcrdma_nfs::v4::Args::Open(Box::new(open))).status()
            };
            // Outside of the grace period there are no reclaims, and this stateid is not a delegation's.
            let is_understood = matches!(status, Status::OK | Status::NO_GRACE | Status::BAD_STATEID);
            assert_eq!(is_understood, has(&told.open_claim, number), "claim {number}: {status:?}");
        }
        let verifier = Verifier([1; 8]);
        let attributes = FileAttributes::of(&[Value::Mode(0o600)]);
        let ways = [
            CreateHow::Unchecked(attributes.clone()),
            CreateHow::Guarded(attributes.clone()),
            CreateHow::Exclusive(verifier),
            CreateHow::Exclusive41(CreateExclusive { verifier, attributes }),
        ];
        for (number, how) in (0..).zip(ways) {
            assert!(has(&told.create_mode, number));
            assert!(create_with(&client, &format!("new {number}"), "o", how).is_ok());
        }
        // The second byte of the access has the wish for a delegation: any (3), none (4), cancel an earlier wish (5).
        for number in 3..=6 {
            let open = Open { access: 1 | number << 8, ..to_open(&client, "f", "o", 1, 0) };
            assert_eq!(open_with(&client, open).is_ok(), has(&told.share_access_want, number), "{number}");
        }
    });
}
