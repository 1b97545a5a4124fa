//! The meaning of a list before and after its conversion from one kind to the other, each kind by its own rules.

use super::*;
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_nfs::attr::Asker;

/// Lists and users draw from so few numbers that they often meet.
const NUMBERS: u32 = 4;
/// The owner and the group of the file.
const FILE: (u32, u32) = (1, 2);

struct Draw(SeededRandom);

impl Draw {
    fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    fn below(&self, limit: u32) -> u32 {
        (self.0.next_u64() % u64::from(limit)) as u32
    }

    fn rights(&self) -> u8 {
        self.below(8) as u8
    }

    fn named(&self) -> Vec<(u32, u8)> {
        (0..NUMBERS).filter(|_| self.below(3) == 0).map(|number| (number, self.rights())).collect()
    }

    fn posix(&self) -> PosixAcl {
        let (users, groups) = (self.named(), self.named());
        let has_mask = !users.is_empty() || !groups.is_empty() || self.below(4) == 0;
        let classes = [self.rights(), self.rights(), self.rights()];
        PosixAcl::new(classes, users, groups, has_mask.then(|| self.rights())).unwrap()
    }

    fn entry(&self, is_directory: bool) -> Ace {
        let number = self.below(NUMBERS).to_string();
        let (who, group): (Principal, u32) = match self.below(5) {
            0 => (ace::OWNER.into(), 0),
            1 => (ace::GROUP.into(), ace::IDENTIFIER_GROUP * self.below(2)),
            2 => (ace::EVERYONE.into(), 0),
            3 => (number.as_str().into(), 0),
            _ => (number.as_str().into(), ace::IDENTIFIER_GROUP),
        };
        let all = [ace::READ_DATA, ace::WRITE_DATA, ace::APPEND_DATA, ace::EXECUTE, ace::DELETE_CHILD];
        let rights = all.into_iter().filter(|_| self.below(2) == 0).fold(0, |all, right| all | right);
        let inherited = [0, INHERITED, INHERITED | ace::INHERIT_ONLY][self.below(3) as usize];
        let flags = group | if is_directory { inherited } else { 0 };
        Ace { kind: self.below(2), flags, rights, who }
    }

    fn acl(&self, is_directory: bool) -> Acl {
        (0..self.below(7)).map(|_| self.entry(is_directory)).collect::<Vec<_>>().into()
    }
}

/// Whether a list of version 4 allows a right, by RFC 8881 section 6.2.1: the first entry that is about the asker and
/// has this right decides.
fn allows(acl: &[Ace], asker: Asker<'_>, right: u32) -> bool {
    let matches = |entry: &&Ace| match Who::of(entry).unwrap() {
        Who::Owner => asker.uid == FILE.0,
        Who::Group => asker.groups.contains(&FILE.1),
        Who::Everyone => true,
        Who::User(uid) => asker.uid == uid,
        Who::NamedGroup(gid) => asker.groups.contains(&gid),
    };
    acl.iter().filter(matches).find(|entry| entry.rights & right != 0).is_some_and(|entry| entry.kind == ace::ALLOWED)
}

/// All users, in all groups that matter.
fn askers(mut each: impl FnMut(Asker<'_>)) {
    for uid in 0..=NUMBERS {
        for set in 0..1u32 << NUMBERS {
            let groups: Vec<u32> = (0..NUMBERS).filter(|group| set >> group & 1 != 0).collect();
            each(Asker { uid, groups: &groups });
        }
    }
}

/// Each right of POSIX, and the rights of version 4 that it stands for.
fn pairs(is_directory: bool) -> Vec<(u8, u32)> {
    let mut pairs =
        vec![(READ, ace::READ_DATA), (WRITE, ace::WRITE_DATA), (WRITE, ace::APPEND_DATA), (EXECUTE, ace::EXECUTE)];
    if is_directory {
        pairs.push((WRITE | EXECUTE, ace::DELETE_CHILD));
    }
    pairs
}

/// The entries of a list that are about the file itself, or those that new files inherit.
fn part(acl: &Acl, inherited: bool) -> Vec<Ace> {
    let is_in = |entry: &&Ace| match inherited {
        true => entry.flags & INHERITED != 0,
        false => entry.flags & ace::INHERIT_ONLY == 0,
    };
    acl.iter().filter(is_in).cloned().collect()
}

/// proves: NFS4-8881-6.2.1-a
#[test]
fn what_is_told_allows_exactly_what_the_host_does() {
    let check = |acl: &PosixAcl, is_directory: bool, what: &dyn Fn() -> String| {
        let told = told(&Acls { access: acl.clone(), default: None }, is_directory).unwrap();
        askers(|asker| {
            for (posix, right) in pairs(is_directory) {
                let host = acl.allows(asker, FILE, posix);
                assert_eq!(allows(&told, asker, right), host, "{} {asker:?} {right:#x} {told:?}", what());
            }
        });
    };
    for mode in 0..=0o777 {
        check(&PosixAcl::of_mode(mode), mode % 2 == 0, &|| format!("{mode:o}"));
    }
    for seed in 0..1500 {
        let acl = Draw::new(seed).posix();
        check(&acl, seed % 2 == 0, &|| format!("{seed} {acl:?}"));
    }
}

/// proves: NFS4-8881-6.2.1-a
#[test]
fn what_is_set_never_allows_more_than_was_asked() {
    let mut allowed = 0;
    for seed in 0..4000 {
        let is_directory = seed % 2 == 0;
        let asked = Draw::new(seed).acl(is_directory);
        let kept = posix(&asked, is_directory).unwrap();
        let told = told(&kept, is_directory).unwrap();
        let lists = [(Some(&kept.access), false), (kept.default.as_ref(), true)];
        for (list, inherited) in lists {
            let (asked, told) = (part(&asked, inherited), part(&told, inherited));
            let Some(list) = list else {
                assert!(asked.is_empty() && told.is_empty());
                continue;
            };
            askers(|asker| {
                for (posix, right) in pairs(is_directory) {
                    let was_asked = allows(&asked, asker, right);
                    assert!(
                        was_asked || !list.allows(asker, FILE, posix),
                        "{seed} {asker:?} {right:#x} {asked:?} {list:?}"
                    );
                    assert!(
                        was_asked || !allows(&told, asker, right),
                        "{seed} {asker:?} {right:#x} {asked:?} {told:?}"
                    );
                    allowed += usize::from(allows(&told, asker, right));
                }
            });
        }
    }
    assert!(allowed > 50_000, "it is not for nothing being allowed: {allowed}");
}

/// proves: NFS4-8881-6.2.1-b
#[test]
fn what_was_told_is_kept_as_it_was() {
    for seed in 0..1500 {
        let draw = Draw::new(seed);
        let is_directory = draw.below(2) == 0;
        let default = (is_directory && draw.below(2) == 0).then(|| draw.posix());
        let acls = Acls { access: draw.posix(), default };
        let first = told(&acls, is_directory).unwrap();
        let kept = posix(&first, is_directory).unwrap();
        // Rights that the mask removed are gone, and so is a mask that then removes nothing.
        let masked = |acl: &PosixAcl| {
            let named =
                |list: &[(u32, u8)]| list.iter().map(|(id, rights)| (*id, acl.masked(*rights))).collect::<Vec<_>>();
            let (users, groups) = (named(acl.users()), named(acl.groups()));
            let classes = [acl.owner(), acl.masked(acl.group()), acl.others()];
            let all = users.iter().chain(&groups).fold(classes[1], |all, named| all | named.1);
            let mask = (!users.is_empty() || !groups.is_empty()).then_some(all);
            PosixAcl::new(classes, users, groups, mask).unwrap()
        };
        assert_eq!(kept.access, masked(&acls.access), "{seed} {first:?}");
        assert_eq!(kept.default, acls.default.as_ref().map(masked), "{seed} {first:?}");
        assert_eq!(told(&kept, is_directory).unwrap(), first, "{seed}");
    }
}

fn allow(who: &str, rights: u32) -> Ace {
    Ace { kind: ace::ALLOWED, flags: 0, rights, who: who.into() }
}

fn deny(who: &str, rights: u32) -> Ace {
    Ace { kind: ace::DENIED, ..allow(who, rights) }
}

const RW: u32 = ace::READ_DATA | ace::WRITE_DATA | ace::APPEND_DATA;

#[test]
fn a_mode_is_told_in_three_entries_where_nobody_has_less_than_later_ones() {
    let of = |mode| told(&Acls::of_mode(mode), false).unwrap();
    let expected = [allow("OWNER@", RW | OWNER), allow("GROUP@", 1 | ANYBODY), allow("EVERYONE@", ANYBODY)];
    assert_eq!(of(0o640)[..], expected);
    let owner = [deny("OWNER@", RW), allow("OWNER@", OWNER), allow("GROUP@", RW | ANYBODY)];
    let rest = [deny("GROUP@", ace::EXECUTE), allow("EVERYONE@", ace::EXECUTE | ANYBODY)];
    let owner = [Ace { rights: RW | ace::EXECUTE, ..owner[0].clone() }, owner[1].clone(), owner[2].clone()];
    assert_eq!(of(0o061)[..], [&owner[..], &rest].concat());
}

/// proves: NFS4-8881-6.2.1-c
#[test]
fn what_cannot_be_had_is_refused() {
    let set = |entries: Vec<Ace>, is_directory| posix(&entries.into(), is_directory);
    let refused = |entry: Ace, is_directory| set(vec![entry], is_directory).err();
    let with = |flags: u32| Ace { flags, ..allow("7", ace::READ_DATA) };
    for kind in [ace::AUDIT, ace::ALARM, 4] {
        assert_eq!(refused(Ace { kind, ..allow("OWNER@", 0) }, false), Some(Status::ATTRNOTSUPP));
    }
    for flags in
        [ace::NO_PROPAGATE_INHERIT | INHERITED, ace::SUCCESSFUL_ACCESS, ace::FAILED_ACCESS, ace::INHERITED, 0x100]
    {
        assert_eq!(refused(with(flags), true), Some(Status::ATTRNOTSUPP), "{flags:#x}");
    }
    assert_eq!(refused(with(ace::INHERIT_ONLY), true), Some(Status::ATTRNOTSUPP), "by nothing");
    assert_eq!(refused(with(ace::FILE_INHERIT), true), Some(Status::ATTRNOTSUPP), "allowed to files alone");
    assert_eq!(refused(with(INHERITED), false), Some(Status::ATTRNOTSUPP), "from a file");
    assert_eq!(refused(with(INHERITED), true), None);
    let denied_to_files = Ace { flags: ace::FILE_INHERIT, ..deny("7", ace::READ_DATA) };
    assert_eq!(refused(denied_to_files, true), None, "stricter than asked");
    for who in ["root@localdomain", "", "OWNER", "owner@", "07", "-1", "4294967295", "4294967296", "INTERACTIVE@"] {
        assert_eq!(refused(allow(who, 0), false), Some(Status::BADOWNER), "{who}");
    }
    for entry in [deny("7", ace::READ_ATTRIBUTES), deny("EVERYONE@", RW | ace::READ_ATTRIBUTES)] {
        assert_eq!(refused(entry, false), Some(Status::ATTRNOTSUPP), "attributes are told to everybody");
    }
    assert_eq!(refused(deny("OWNER@", ace::WRITE_ATTRIBUTES), false), Some(Status::ATTRNOTSUPP));
    assert_eq!(refused(deny("EVERYONE@", ace::WRITE_OWNER | ace::DELETE), false), None);
    let last = vec![allow("EVERYONE@", ANYBODY | ace::WRITE_ATTRIBUTES), deny("EVERYONE@", u32::MAX)];
    assert!(set(last, false).is_ok(), "what was allowed before is not denied");
}

/// proves: NFS4-8881-6.2.1-b
#[test]
fn the_longest_list_is_set_and_one_entry_more_is_not() {
    let of = |count: usize| (0..count).map(|number| allow(&number.to_string(), RW)).collect::<Vec<_>>();
    let kept = posix(&of(MAX_SET_ACES).into(), false).unwrap();
    assert_eq!(kept.access.users().len(), MAX_SET_ACES);
    assert_eq!(posix(&of(MAX_SET_ACES + 1).into(), false), Err(Status::FBIG));
}

#[test]
fn the_longest_list_is_told_and_one_entry_more_is_not() {
    let of = |count: usize| {
        let users = (0..count as u32).map(|number| (number, 7)).collect();
        told(&Acls { access: PosixAcl::new([7, 7, 0], users, vec![], Some(7)).unwrap(), default: None }, false)
    };
    assert_eq!(of(MAX_ACES - 3).unwrap().len(), MAX_ACES);
    assert_eq!(of(MAX_ACES - 2), None);
}
