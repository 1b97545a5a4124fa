//! libibverbs and librdmacm as in C: structures, constants, and the functions, which are looked up at run time.
//!
//! Nothing here is safe to call. The modules above wrap each kind of object in a type that owns it.

pub(crate) mod cm;
pub(crate) mod library;
pub(crate) mod verbs;

pub(crate) use library::Library;

#[cfg(test)]
mod layout;
