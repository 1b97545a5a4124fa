//! The built server under load, judged from outside: a thousand connections and what each of them costs, and soaks with
//! clients that check every byte beside peers that mean no good.
//!
//! The server is a process of the built command; clients are tasks of this one, over the project's own library. What
//! the server holds is read from `/proc`. `cargo xtask load` and `cargo xtask soak` start the program of this crate.
//!
//! [`beside`] measures version 4.2 of NFS beside version 3.

pub mod beside;
pub mod clients;
pub mod load;
pub mod resources;
pub mod server;
pub mod soak;
