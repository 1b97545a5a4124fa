//! The bindings as a table: which items may be placed directly (RFC 8267 section 2), for documentation and for whoever
//! reads what is on the wire. A test holds it against the encoders.

use crate::v3;
use std::fmt;

/// What the binding says of one procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure's number.
    pub procedure: u32,
    /// The procedure's name.
    pub name: &'static str,
    /// The argument that may be placed directly.
    pub eligible_argument: Option<&'static str>,
    /// The result that may be placed directly.
    pub eligible_result: Option<&'static str>,
}

/// The binding of NFS version 3: every procedure, by number.
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

/// The bindings as a Markdown document.
pub fn document() -> String {
    let mut text = String::from(
        "# Which NFS items may be placed directly\n\n\
         Made from `crates/nfs/src/binding.rs` by `cargo run -q -p rpcrdma-nfs --example bindings`; a test holds it against the\n\
         encoders. Everything else of a call or reply stays in the message (RFC 8267 section 2). MOUNT has no binding and travels over TCP.\n\n\
         ## NFS version 3\n\n\
         | number | procedure | argument | result |\n|---|---|---|---|\n",
    );
    for row in nfs_v3() {
        text += &format!("{row}\n");
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
