//! Converts access control lists of NFS version 4 (RFC 8881 section 6) to and from POSIX lists, as far as both can
//! express the same.
//!
//! ```text
//! read:  the entries of each class in the order in which POSIX asks them: the owner; users; the file's group and
//!        further ones, of which any may allow; all others. An entry that denies keeps a class from what later entries
//!        allow.
//! set:   each class of the POSIX list gets what the entries surely allow its members, whatever groups those are in. So
//!        what is kept may allow less than what was set, and never more.
//! ```
//!
//! The default list of a directory appears as entries that are inherit-only, for files and directories. The server
//! refuses denials that no POSIX list can express: of reading attributes, and for the owner of setting them.

use rpcrdma_nfs::{
    attr::{Acls, EXECUTE, MAX_NAMED, PosixAcl, READ, WRITE},
    v4::{Ace, Acl, MAX_ACES, Principal, Status, ace},
};

/// The most entries of a list that a client sets. The server may compare each with each, on a thread that serves
/// others, too: for this many that takes about a millisecond. Linux's server accepts fewer.
pub(super) const MAX_SET_ACES: usize = 512;

/// What any user may do with a file that it finds.
const ANYBODY: u32 = ace::READ_ATTRIBUTES | ace::READ_ACL | ace::SYNCHRONIZE;
/// What the owner may do in addition, whatever the mode is.
const OWNER: u32 = ANYBODY | ace::WRITE_ATTRIBUTES | ace::WRITE_ACL;
/// Both flags with which an entry is inherited. POSIX has one for the two.
const INHERITED: u32 = ace::FILE_INHERIT | ace::DIRECTORY_INHERIT;

/// The rights of a POSIX entry in version 4's bits. A caller that may write to a directory and search it may remove its
/// entries.
fn rights_of(posix: u8, is_directory: bool) -> u32 {
    let mut rights = 0;
    if posix & READ != 0 {
        rights |= ace::READ_DATA;
    }
    if posix & WRITE != 0 {
        rights |= ace::WRITE_DATA | ace::APPEND_DATA;
    }
    if posix & EXECUTE != 0 {
        rights |= ace::EXECUTE;
    }
    if is_directory && posix & (WRITE | EXECUTE) == WRITE | EXECUTE {
        rights |= ace::DELETE_CHILD;
    }
    rights
}

/// The POSIX rights that together allow no more than these bits.
fn posix_of(rights: u32, is_directory: bool) -> u8 {
    let has = |asked: u32| rights & asked == asked;
    let mut posix = 0;
    if has(ace::READ_DATA) {
        posix |= READ;
    }
    if has(ace::EXECUTE) {
        posix |= EXECUTE;
    }
    let removes = is_directory && posix & EXECUTE != 0;
    if has(ace::WRITE_DATA | ace::APPEND_DATA) && (!removes || has(ace::DELETE_CHILD)) {
        posix |= WRITE;
    }
    posix
}

/// The list for a client. `None` if it has more entries than clients read.
pub fn told(acls: &Acls, is_directory: bool) -> Option<Acl> {
    let mut entries = Vec::new();
    tell(&acls.access, is_directory, 0, &mut entries);
    if let Some(default) = &acls.default {
        tell(default, is_directory, INHERITED | ace::INHERIT_ONLY, &mut entries);
    }
    (entries.len() <= MAX_ACES).then(|| entries.into())
}

fn tell(acl: &PosixAcl, is_directory: bool, flags: u32, entries: &mut Vec<Ace>) {
    let group_flags = flags | ace::IDENTIFIER_GROUP;
    let rights = |posix: u8| rights_of(posix, is_directory);
    let mut push = |kind: u32, flags: u32, rights: u32, who: &Principal| {
        if kind == ace::ALLOWED || rights != 0 {
            entries.push(Ace { kind, flags, rights, who: who.clone() });
        }
    };
    let named = |list: &[(u32, u8)]| {
        // NFS4-8881-6.2.1-a
        list.iter().map(|(id, posix)| (Principal::of_number(*id), rights(acl.masked(*posix)))).collect::<Vec<_>>()
    };
    let (users, named_groups) = (named(acl.users()), named(acl.groups()));
    let mut groups = vec![(ace::GROUP.into(), rights(acl.masked(acl.group())), flags)];
    groups.extend(named_groups.into_iter().map(|(who, rights)| (who, rights, group_flags)));
    let others = rights(acl.others());
    let all_groups = groups.iter().fold(others, |all, group| all | group.1);
    let all_users = users.iter().fold(all_groups, |all, user| all | user.1);
    let owner = rights(acl.owner());
    push(ace::DENIED, flags, all_users & !owner, &ace::OWNER.into());
    push(ace::ALLOWED, flags, owner | OWNER, &ace::OWNER.into());
    for (who, rights) in &users {
        push(ace::DENIED, flags, all_groups & !rights, who);
        push(ace::ALLOWED, flags, rights | ANYBODY, who);
    }
    // If any group entry allows a right, it is allowed; so no denial stands before the last of them.
    for (who, rights, flags) in &groups {
        push(ace::ALLOWED, *flags, rights | ANYBODY, who);
    }
    for (who, rights, flags) in &groups {
        // NFS4-8881-6.2.1-a
        push(ace::DENIED, *flags, others & !rights, who);
    }
    push(ace::ALLOWED, flags, others | ANYBODY, &ace::EVERYONE.into());
}

/// The users that an entry is about; also a class of users of a POSIX list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Owner,
    User(u32),
    Group,
    NamedGroup(u32),
    Everyone,
}

impl Who {
    /// To whom a client's entry applies (RFC 8881 section 6.2.1.5).
    ///
    /// # Errors
    /// BADOWNER for a name, and for the number that means "no user".
    fn of(entry: &Ace) -> Result<Self, Status> {
        // Beside a special name the flag means nothing (RFC 8881 section 6.2.1.4.1).
        match entry.who.as_slice() {
            special if special == ace::OWNER.as_bytes() => return Ok(Self::Owner),
            special if special == ace::GROUP.as_bytes() => return Ok(Self::Group),
            special if special == ace::EVERYONE.as_bytes() => return Ok(Self::Everyone),
            _ => {}
        }
        let number = entry.who.number().filter(|number| *number != u32::MAX).ok_or(Status::BADOWNER)?;
        Ok(if entry.flags & ace::IDENTIFIER_GROUP != 0 { Self::NamedGroup(number) } else { Self::User(number) })
    }

    /// Whether an entry about `who` matches every member of this class of a POSIX list.
    fn is_surely(self, who: Self) -> bool {
        self == who || who == Self::Everyone
    }

    /// Whether an entry about `self` may match a member of the class `who`. The server does not know a user's groups,
    /// and the owner may be any user. The owner, and a user with an own entry, is in no further class.
    fn is_maybe(self, who: Self) -> bool {
        match (self, who) {
            (_, Self::Everyone) | (Self::Owner, _) => true,
            // No other user has an own entry, or is in a group that has one.
            (Self::Everyone, _) => false,
            (Self::User(_), Self::User(_)) => self == who,
            // NFS4-8881-6.2.1-a
            (_, Self::Group | Self::NamedGroup(_)) => true,
            (_, Self::Owner | Self::User(_)) => false,
        }
    }
}

/// An entry of a list that a client sets.
struct Entry {
    allows: bool,
    rights: u32,
    who: Who,
    /// Whether it applies to the file itself.
    is_effective: bool,
    is_inherited: bool,
}

impl Entry {
    /// # Errors
    /// ATTRNOTSUPP if the host cannot express the entry; BADOWNER.
    // NFS4-8881-6.2.1-c
    fn of(entry: &Ace, is_directory: bool) -> Result<Self, Status> {
        let who = Who::of(entry)?;
        let allows = match entry.kind {
            ace::ALLOWED => true,
            ace::DENIED => false,
            _ => return Err(Status::ATTRNOTSUPP),
        };
        let inherited = entry.flags & INHERITED;
        let inherits_only = entry.flags & ace::INHERIT_ONLY != 0;
        let is_known = entry.flags & !(INHERITED | ace::INHERIT_ONLY | ace::IDENTIFIER_GROUP) == 0;
        // RFC 8881 section 6.2.1.4.1: an entry that nothing inherits cannot be inherit-only, and only entries of
        // directories can be inherited.
        let is_meant = if inherited == 0 { !inherits_only } else { is_directory };
        // Here files and directories always inherit the same. If a client wants only one of them to inherit a denial,
        // both may: that is stricter. A permission must not go to both.
        let is_had = inherited == 0 || inherited == INHERITED || !allows;
        if !is_known || !is_meant || !is_had {
            return Err(Status::ATTRNOTSUPP);
        }
        let (is_effective, is_inherited) = (!inherits_only, inherited != 0);
        Ok(Self { allows, rights: entry.rights, who, is_effective, is_inherited })
    }
}

/// The POSIX lists for a list of version 4.
///
/// # Errors
/// BADOWNER for a name that is not a number; ATTRNOTSUPP if the host cannot express the list, or only with more rights;
/// FBIG if it is too long.
// NFS4-8881-6.2.1-b
pub fn posix(acl: &Acl, is_directory: bool) -> Result<Acls, Status> {
    if acl.len() > MAX_SET_ACES {
        return Err(Status::FBIG);
    }
    let entries = acl.iter().map(|entry| Entry::of(entry, is_directory)).collect::<Result<Vec<_>, _>>()?;
    let effective: Vec<_> = entries.iter().filter(|entry| entry.is_effective).collect();
    let inherited: Vec<_> = entries.iter().filter(|entry| entry.is_inherited).collect();
    let access = posix_list(&effective, is_directory)?;
    let default = if inherited.is_empty() { None } else { Some(posix_list(&inherited, is_directory)?) };
    Ok(Acls { access, default })
}

fn posix_list(entries: &[&Entry], is_directory: bool) -> Result<PosixAcl, Status> {
    let rights = |class: Who| surely_allowed(entries, class).map(|rights| posix_of(rights, is_directory));
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.who {
            Who::User(number) => users.push(number),
            Who::NamedGroup(number) => groups.push(number),
            _ => {}
        }
    }
    let named = |mut numbers: Vec<u32>, class: fn(u32) -> Who| -> Result<Vec<(u32, u8)>, Status> {
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| rights(class(number)).map(|rights| (number, rights))).collect()
    };
    let users = named(users, Who::User)?;
    let groups = named(groups, Who::NamedGroup)?;
    let classes = [rights(Who::Owner)?, rights(Who::Group)?, rights(Who::Everyone)?];
    let all = users.iter().chain(&groups).fold(classes[1], |all, named| all | named.1);
    let mask = if users.is_empty() && groups.is_empty() { None } else { Some(all) };
    const { assert!(MAX_SET_ACES <= MAX_NAMED) };
    PosixAcl::new(classes, users, groups, mask).ok_or(Status::INVAL)
}

/// The rights that every member of a class has, whatever groups the member is in.
///
/// # Errors
/// ATTRNOTSUPP if some members are denied a right that the host gives them.
fn surely_allowed(entries: &[&Entry], class: Who) -> Result<u32, Status> {
    let (mut allowed, mut denied) = (0, 0);
    for entry in entries {
        // The first entry with a right decides on this right (RFC 8881 section 6.2.1).
        let left = entry.rights & !(allowed | denied);
        if entry.allows && class.is_surely(entry.who) {
            allowed |= left;
        } else if !entry.allows && class.is_maybe(entry.who) {
            denied |= left;
        }
    }
    let given = if class == Who::Owner { ace::READ_ATTRIBUTES | ace::WRITE_ATTRIBUTES } else { ace::READ_ATTRIBUTES };
    if denied & given == 0 { Ok(allowed) } else { Err(Status::ATTRNOTSUPP) }
}

#[cfg(test)]
mod tests;
