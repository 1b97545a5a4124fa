//! Access control lists as POSIX has them (the withdrawn 1003.1e, which Linux and others have): what a file system
//! keeps beside a mode. Each protocol converts to and from its own.
//!
//! A list always has a meaning: users and groups are sorted, each stands in it once, and there is a mask if any user or
//! group is named.

/// The most users and groups in one list: what the 64 KiB of Linux's `XATTR_SIZE_MAX` hold, without the entries for
/// owner, group, mask and others.
pub const MAX_NAMED: usize = 8187;

/// Rights in an entry: to read.
pub const READ: u8 = 4;
/// Rights in an entry: to write.
pub const WRITE: u8 = 2;
/// Rights in an entry: to execute a file, to look up in a directory.
pub const EXECUTE: u8 = 1;
/// All rights of an entry.
const ALL: u8 = READ | WRITE | EXECUTE;

/// An access control list.
///
/// ```
/// use rpcrdma_nfs::attr::PosixAcl;
/// let acl = PosixAcl::new([6, 4, 0], vec![(1000, 7)], vec![], Some(5)).unwrap();
/// assert_eq!(acl.mode(), 0o650, "the mask stands where the mode has the group");
/// assert!(PosixAcl::new([6, 4, 0], vec![(1000, 7)], vec![], None).is_none(), "names need a mask");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixAcl {
    owner: u8,
    users: Vec<(u32, u8)>,
    group: u8,
    groups: Vec<(u32, u8)>,
    mask: Option<u8>,
    others: u8,
}

/// A caller that wants to use a file: the user and the groups that a list is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The user.
    pub uid: u32,
    /// All groups that the user is in.
    pub groups: &'a [u32],
}

impl PosixAcl {
    /// The list with the same meaning as a mode.
    pub fn of_mode(mode: u32) -> Self {
        let [owner, group, others] = [mode >> 6, mode >> 3, mode].map(|bits| bits as u8 & ALL);
        Self { owner, users: Vec::new(), group, groups: Vec::new(), mask: None, others }
    }

    /// A list: the rights of the owner, of the file's group and of the others; those of further users and groups by
    /// number; and the most that users and groups get. `None` if two entries are of the same user or group, a user or
    /// group is named without a mask, there are more than [`MAX_NAMED`], a number is the one that stands for nobody, or
    /// there are other rights than the three.
    pub fn new(
        [owner, group, others]: [u8; 3],
        mut users: Vec<(u32, u8)>,
        mut groups: Vec<(u32, u8)>,
        mask: Option<u8>,
    ) -> Option<Self> {
        for named in [&mut users, &mut groups] {
            named.sort_unstable();
            let is_clear = named.is_sorted_by(|one, next| one.0 < next.0);
            if !is_clear || named.iter().any(|(id, rights)| *id == u32::MAX || *rights > ALL) {
                return None;
            }
        }
        let names = users.len() + groups.len();
        let is_meant = [owner, group, others, mask.unwrap_or(0)].iter().all(|rights| *rights <= ALL);
        let is_legal = is_meant && names <= MAX_NAMED && (mask.is_some() || names == 0);
        is_legal.then_some(Self { owner, users, group, groups, mask, others })
    }

    /// The owner's rights.
    pub fn owner(&self) -> u8 {
        self.owner
    }

    /// The rights of the file's group, before the mask.
    pub fn group(&self) -> u8 {
        self.group
    }

    /// The rights of all others.
    pub fn others(&self) -> u8 {
        self.others
    }

    /// Users by number with their rights, before the mask.
    pub fn users(&self) -> &[(u32, u8)] {
        &self.users
    }

    /// Groups by number with their rights, before the mask.
    pub fn groups(&self) -> &[(u32, u8)] {
        &self.groups
    }

    /// The most that users and groups get, if there is such an entry.
    pub fn mask(&self) -> Option<u8> {
        self.mask
    }

    /// The rights that the mask leaves.
    pub fn masked(&self, rights: u8) -> u8 {
        rights & self.mask.unwrap_or(ALL)
    }

    /// The nine permission bits of the file's mode.
    pub fn mode(&self) -> u32 {
        u32::from(self.owner) << 6 | u32::from(self.mask.unwrap_or(self.group)) << 3 | u32::from(self.others)
    }

    /// Whether a mode can express the whole list.
    pub fn is_mode(&self) -> bool {
        self.mask.is_none()
    }

    /// The list of a file that gets this mode: the mode's group bits replace the mask, if there is one.
    #[must_use]
    pub fn with_mode(&self, mode: u32) -> Self {
        let Self { owner, group, others, .. } = Self::of_mode(mode);
        match self.mask {
            Some(_) => Self { owner, others, mask: Some(group), ..self.clone() },
            None => Self { owner, group, others, ..self.clone() },
        }
    }

    /// Whether it permits a caller something on a file of this owner and group. One entry must have all rights that the
    /// caller asks for.
    pub fn allows(&self, asker: Asker<'_>, (owner, group): (u32, u32), rights: u8) -> bool {
        let has = |entry: u8| entry & rights == rights;
        if asker.uid == owner {
            return has(self.owner);
        }
        if let Ok(place) = self.users.binary_search_by_key(&asker.uid, |user| user.0) {
            return has(self.masked(self.users[place].1));
        }
        let is_in = |group: &u32| asker.groups.contains(group);
        let of_groups = self.groups.iter().filter(|(id, _)| is_in(id)).map(|(_, rights)| *rights);
        let mut matching = is_in(&group).then_some(self.group).into_iter().chain(of_groups).peekable();
        if matching.peek().is_none() {
            return has(self.others);
        }
        matching.any(|entry| has(self.masked(entry)))
    }
}

/// The lists of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acls {
    /// The rights to the file.
    pub access: PosixAcl,
    /// New files in the directory begin with this list.
    pub default: Option<PosixAcl>,
}

impl Acls {
    /// The lists of a file that has only a mode.
    pub fn of_mode(mode: u32) -> Self {
        Self { access: PosixAcl::of_mode(mode), default: None }
    }

    /// Whether a mode can express both lists.
    pub fn is_mode(&self) -> bool {
        self.access.is_mode() && self.default.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_a_list_and_back() {
        for mode in 0..=0o777 {
            let acl = PosixAcl::of_mode(0o7000 | mode);
            assert_eq!((acl.mode(), acl.is_mode()), (mode, true));
        }
    }

    #[test]
    fn a_mode_becomes_the_mask_where_there_is_one() {
        let acl = PosixAcl::new([7, 5, 4], vec![(10, 7)], vec![], Some(6)).unwrap();
        let narrowed = acl.with_mode(0o4640);
        assert_eq!((narrowed.owner(), narrowed.group(), narrowed.mask(), narrowed.others()), (6, 5, Some(4), 0));
        assert_eq!((narrowed.mode(), narrowed.users()), (0o640, acl.users()));
        assert_eq!(PosixAcl::of_mode(0o777).with_mode(0o640), PosixAcl::of_mode(0o640));
    }

    #[test]
    fn what_means_nothing_is_no_list() {
        let named = |count: usize| (0..count as u32).map(|id| (id, 0)).collect::<Vec<_>>();
        assert!(PosixAcl::new([7; 3], named(MAX_NAMED - 1), named(1), Some(7)).is_some());
        assert!(PosixAcl::new([7; 3], named(MAX_NAMED), named(1), Some(7)).is_none());
        assert!(PosixAcl::new([7; 3], named(1), vec![], None).is_none());
        assert!(PosixAcl::new([7; 3], vec![], vec![(1, 2), (2, 2), (1, 3)], Some(7)).is_none());
        assert!(PosixAcl::new([7; 3], vec![(u32::MAX, 1)], vec![], Some(7)).is_none());
        assert!(PosixAcl::new([7; 3], vec![(1, 8)], vec![], Some(7)).is_none());
        assert!(PosixAcl::new([8, 0, 0], vec![], vec![], None).is_none());
        assert!(PosixAcl::new([7; 3], vec![], vec![], Some(8)).is_none());
    }

    #[test]
    fn the_first_class_that_matches_decides() {
        let acl = PosixAcl::new([2, 4, 7], vec![(10, 7)], vec![(20, 6), (21, 1)], Some(5)).unwrap();
        let may = |uid, groups: &[u32], rights| acl.allows(Asker { uid, groups }, (1, 2), rights);
        assert!(may(1, &[2, 20], WRITE) && !may(1, &[2, 20], READ), "the owner, whatever groups say");
        assert!(may(10, &[], READ | EXECUTE) && !may(10, &[], WRITE), "the mask takes a right away");
        assert!(may(11, &[2], READ) && !may(11, &[2], EXECUTE), "the group, though others have the right");
        assert!(may(11, &[20, 21], READ) && may(11, &[20, 21], EXECUTE));
        assert!(!may(11, &[20, 21], READ | EXECUTE), "no entry has both");
        assert!(may(11, &[9], READ | WRITE | EXECUTE), "others are not masked");
    }
}
