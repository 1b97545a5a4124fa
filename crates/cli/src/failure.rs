//! How errors are written: a line for a person, or with `--json` an object on a line, both on standard error.
//!
//! `{"error": {"path": ..., "local": ..., "procedure": ..., "status": ..., "message": ...}}`: the path on the server,
//! the local path of a copy, the procedure of NFS or MOUNT that failed, and the name of the server's status, each if
//! there is one; the message is the text for a person. A notice that is not an error is
//! `{"warning": {"message": ...}}`. A path that is not UTF-8 is in hexadecimal, under `path_hex` or `local_hex`.

use crate::{
    depth::TooDeep,
    names::{self, escaped},
};
use rpcrdma_nfs_client::{Error, MountError};
use rpcrdma_oncrpc::CallError;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    fmt,
    io::Write,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Whether errors are written as JSON: a process runs one command, which sets this once, before it begins.
static AS_JSON: OnceLock<bool> = OnceLock::new();

/// Sets how errors are written from now on. Only the first call counts.
pub(crate) fn choose_form(json: bool) {
    let _ = AS_JSON.set(json);
}

fn is_json() -> bool {
    AS_JSON.get().copied().unwrap_or(false)
}

/// Something that the user asked for could not be done, which has been reported already.
#[derive(Debug)]
pub(crate) struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not everything could be done")
    }
}

impl std::error::Error for Failed {}

/// Wrong usage that is found after the command line was read: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The path on the server that an error is about, as its context.
#[derive(Clone, Debug)]
pub(crate) struct At {
    path: Vec<u8>,
    /// The line begins with a local path.
    copied: bool,
}

impl At {
    /// A path that the user named, or below it.
    pub(crate) fn new(path: &[u8]) -> Self {
        Self { path: path.to_vec(), copied: false }
    }

    /// The path of the server's side of a copy.
    pub(crate) fn copied(path: Vec<u8>) -> Self {
        Self { path, copied: true }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.path))?;
        f.write_str(if self.copied { " on the server" } else { "" })
    }
}

/// The first error of a type in a chain of causes, in which the library's errors have causes of their own.
pub(crate) fn cause<T: std::error::Error + 'static>(error: &anyhow::Error) -> Option<&T> {
    error.chain().find_map(|cause| match cause.downcast_ref::<rpcrdma::Error>() {
        Some(error) => error.find(),
        None => cause.downcast_ref(),
    })
}

/// Whether the error is an answer of the server, or the lack of one, and nothing that failed here.
pub(crate) fn is_the_servers(error: &anyhow::Error) -> bool {
    cause::<Error>(error).is_some()
}

/// Whether to give up, rather than go on with the next file: the server cannot be reached, or its tree has no end.
pub(crate) fn is_hopeless(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<TooDeep>())
        || cause(error).is_some_and(Error::is_unreachable)
        || matches!(cause(error), Some(CallError::Transport(_)))
}

/// The line for an error that ends the command.
pub(crate) fn line(error: &anyhow::Error) -> String {
    form(&[], error, is_json())
}

/// The line for an error with a path on the server.
pub(crate) fn line_at(path: &[u8], error: &anyhow::Error) -> String {
    form(&[("path", path)], error, is_json())
}

/// The line for an error with a file of this machine that is copied.
pub(crate) fn line_of_local(local: &[u8], error: &anyhow::Error) -> String {
    form(&[("local", local)], error, is_json())
}

/// Writes a line to standard error. If that is full or closed, nobody can read it.
pub(crate) fn write(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes an error that ends the command.
pub(crate) fn tell(error: &anyhow::Error) {
    write(&line(error));
}

/// Writes a notice that is not an error, in either form.
pub(crate) fn warning(text: &str) {
    write(&warning_line(text));
}

/// The same for a notice that several connections of a command would each give.
pub(crate) fn warning_once(text: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
        warning(text);
    }
}

/// The line for a notice that is not an error.
pub(crate) fn warning_line(text: &str) -> String {
    if is_json() { names::json(&json!({ "warning": { "message": text } })) } else { format!("rpcrdma: {text}") }
}

fn form(paths: &[(&str, &[u8])], error: &anyhow::Error, as_json: bool) -> String {
    let named: String = paths.iter().map(|(_, path)| format!("{}: ", escaped(path))).collect();
    let message = format!("{named}{error:#}");
    if !as_json {
        return format!("rpcrdma: {message}");
    }
    let mut object = Map::new();
    if let Some(At { path, .. }) = error.downcast_ref::<At>() {
        names::insert_json(&mut object, "path", path);
    }
    for (key, path) in paths {
        names::insert_json(&mut object, key, path);
    }
    let nfs = cause::<Error>(error);
    let mount = cause::<MountError>(error);
    if let Some(procedure) = nfs.and_then(Error::procedure).or(mount.and_then(MountError::procedure)) {
        object.insert("procedure".into(), procedure.into());
    }
    if let Some(status) =
        nfs.and_then(Error::status).map(|status| status.name()).or(mount.and_then(MountError::status_name))
    {
        object.insert("status".into(), status.into());
    }
    object.insert("message".into(), message.into());
    names::json(&json!({ "error": Value::Object(object) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::v3::Status;

    fn refused() -> anyhow::Error {
        Error::Status { procedure: "CREATE", status: Status::ROFS.into(), denied: None }.into()
    }

    #[test]
    fn a_line_names_the_path_the_procedure_and_the_status() {
        let expected = "rpcrdma: /a\\n: CREATE: the file system is read-only (NFS3ERR_ROFS)";
        assert_eq!(form(&[("path", b"/a\n")], &refused(), false), expected);
        assert_eq!(form(&[], &refused().context(At::new(b"/a\n")), false), expected);
    }

    #[test]
    fn an_object_has_them_apart() {
        let error = refused().context(At::copied(b"/\xff".to_vec())).context("why not");
        let told: Value = serde_json::from_str(&form(&[("local", b"here")], &error, true)).unwrap();
        let told = &told["error"];
        assert_eq!((&told["path_hex"], &told["local"]), (&"2fff".into(), &"here".into()));
        assert_eq!((&told["procedure"], &told["status"]), (&"CREATE".into(), &"NFS3ERR_ROFS".into()));
        assert!(told["message"].as_str().unwrap().contains("read-only"));
    }

    #[test]
    fn what_failed_here_names_no_procedure() {
        let error = anyhow::Error::from(std::io::Error::from(std::io::ErrorKind::NotFound));
        assert!(!is_the_servers(&error) && is_the_servers(&refused()));
        let told: Value = serde_json::from_str(&form(&[("local", b"here")], &error, true)).unwrap();
        assert!(told["error"].get("procedure").is_none() && told["error"].get("path").is_none());
    }
}
