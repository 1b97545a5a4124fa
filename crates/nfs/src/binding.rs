//! The bindings as a table: which items may be placed directly (RFC 8267 section 2), for documentation and for readers
//! of captures. A test compares it with the encoders.

use crate::{v2, v3, v4};
use std::fmt;

/// What the binding says of one procedure, or of one operation of COMPOUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The number of the procedure; in version 4 of the operation.
    pub procedure: u32,
    /// The procedure's or operation's name.
    pub name: &'static str,
    /// The argument that may be placed directly.
    pub eligible_argument: Option<&'static str>,
    /// The result that may be placed directly.
    pub eligible_result: Option<&'static str>,
}

/// The binding of NFS version 2: every procedure, by number.
// ULB-3-a, ULB-3.1-a, ULB-3.1-b, ULB-3.1-c, ULB-1-a, V1-6-a
pub fn nfs_v2() -> [Binding; 18] {
    v2::Procedure::ALL.map(|procedure| Binding {
        program: v2::PROGRAM,
        version: v2::VERSION,
        procedure: procedure as u32,
        name: procedure.name(),
        eligible_argument: match procedure {
            v2::Procedure::Write => Some("data"),
            v2::Procedure::SymbolicLink => Some("to"),
            _ => None,
        },
        eligible_result: match procedure {
            v2::Procedure::Read => Some("data"),
            v2::Procedure::ReadLink => Some("data"),
            _ => None,
        },
    })
}

/// The binding of NFS version 3: every procedure, by number.
// ULB-3-a, ULB-3.1-a, ULB-3.1-b, ULB-3.1-c, ULB-1-a, V1-6-a
pub fn nfs_v3() -> [Binding; 22] {
    v3::Procedure::ALL.map(|procedure| Binding {
        program: v3::PROGRAM,
        version: v3::VERSION,
        procedure: procedure as u32,
        name: procedure.name(),
        eligible_argument: match procedure {
            v3::Procedure::Write => Some("data"),
            v3::Procedure::SymbolicLink => Some("symlink_data"),
            _ => None,
        },
        eligible_result: match procedure {
            v3::Procedure::Read => Some("data"),
            v3::Procedure::ReadLink => Some("data"),
            _ => None,
        },
    })
}

/// The binding of NFS version 4, all minor versions: every operation, by number.
// ULB-5-a, ULB-1-a, V1-6-a, ULB-5.5-a, V1-3.4.4.3-a, V2-4.3.4.3-a, V1-3.4.4.3-b, V2-4.3.4.3-b
pub fn nfs_v4() -> Vec<Binding> {
    let row = |op: &v4::Op| Binding {
        program: v4::PROGRAM,
        version: v4::VERSION,
        procedure: *op as u32,
        name: op.name(),
        eligible_argument: op.eligible_argument(),
        eligible_result: op.eligible_result(),
    };
    v4::Op::ALL.iter().map(row).collect()
}

/// The bindings as a Markdown document.
pub fn document() -> String {
    let mut text = String::from(
        "# Which NFS items may be placed directly\n\n\
         `cargo run -q -p rpcrdma-nfs --example bindings` makes this page from `crates/nfs/src/binding.rs`; a\n\
         test compares it with the encoders. RDMA may place only these items directly; everything else of a\n\
         call or reply stays in the message (RFC 8267 section 2). MOUNT has no binding and travels over TCP.\n\
         NFSACL travels where NFS version 3 does, and has no such item.\n\n\
         - [NFS version 2](#nfs-version-2)\n\
         - [NFS version 3](#nfs-version-3)\n\
         - [NFS version 4](#nfs-version-4)\n\n\
         ## NFS version 2\n\n\
         | number | procedure | argument | result |\n|---|---|---|---|\n",
    );
    for row in nfs_v2() {
        text += &format!("{row}\n");
    }
    text += "\n## NFS version 3\n\n| number | procedure | argument | result |\n|---|---|---|---|\n";
    for row in nfs_v3() {
        text += &format!("{row}\n");
    }
    text += "\n## NFS version 4\n\n\
             These are the operations of COMPOUND in minor versions 0 to 2; `-` stands for a version without the\n\
             operation. The operations of CB_COMPOUND have no such items.\n\n\
             READ and READLINK take the Write chunks of a call in the order of the operations. No other operation\n\
             takes one, not even READ_PLUS. A chunk without segments asks for its result inline, and so does a\n\
             list that has ended. The chunks of operations that fail, or that the server does not execute, come\n\
             back unused: with their segments, and without data.\n\n\
             | number | operation | argument | result | minor versions |\n|---|---|---|---|---|\n";
    for (row, op) in nfs_v4().iter().zip(v4::Op::ALL) {
        let minors = [0, 1, 2].map(|minor| if op.exists_in(minor) { minor.to_string() } else { "-".to_owned() });
        text += &format!("{row} {} |\n", minors.join(" "));
    }
    text
}

impl fmt::Display for Binding {
    /// A row of a Markdown table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = |item: Option<&'static str>| item.unwrap_or("");
        write!(
            f,
            "| {} | {} | {} | {} |",
            self.procedure,
            self.name,
            item(self.eligible_argument),
            item(self.eligible_result)
        )
    }
}
