//! The built server under load, judged from outside: a thousand connections and what each of them costs, and soaks with
//! clients that check every byte beside hostile peers.
//!
//! The server is a process of the built command; clients are tasks of this process, and use the project's own library.
//! `/proc` shows what the server holds. `cargo xtask load` and `cargo xtask soak` start the program of this crate.
//!
//! [`beside`] compares version 4.2 of NFS with version 3.

pub mod beside;
pub mod clients;
pub mod load;
pub mod resources;
pub mod server;
pub mod soak;
