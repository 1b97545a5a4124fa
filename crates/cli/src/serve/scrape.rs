//! The metrics port: HTTP/1.1 for Prometheus and for nobody else, with limits of its own.
//!
//! Anyone who reaches the port may ask, so it takes only a few connections, each for a few seconds, a short request and
//! one answer: it cannot take the descriptors that NFS needs. All addresses of one client leave a quarter of the places
//! to others. A wrong request gets an answer of HTTP, and no warning.

use httparse::{EMPTY_HEADER, Request, Status};
use rpcrdma::server::beside::{ACCEPT_PAUSE, Entry, Gate, Seldom};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Connections at a time. Prometheus makes one for each of its servers.
const SCRAPE_CONNECTIONS: u32 = 16;
/// The longest request, in bytes, up to the empty line. Prometheus sends some 300.
const REQUEST_BYTES: usize = 8 << 10;
/// The most header fields.
const REQUEST_FIELDS: usize = 64;
/// How long a connection may last, from its beginning to the end of the answer. Prometheus gives up after 10 s, too.
const SCRAPE_TIME: Duration = Duration::from_secs(10);
/// The path of the numbers.
const PATH: &str = "/metrics";

/// Writes the numbers.
pub(super) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers until the runtime ends.
pub(super) async fn serve(listener: TcpListener, render: Render) {
    let gate = Arc::new(Gate::new(SCRAPE_CONNECTIONS, Vec::new()));
    let not_accepted = Seldom::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match gate.enter(peer.ip()) {
                Ok(Entry::Guest(setup)) => {
                    let (place, render) = (setup.finish(), render.clone());
                    tokio::spawn(async move {
                        let answered = tokio::time::timeout(SCRAPE_TIME, converse(stream, &render)).await;
                        match answered {
                            Ok(Ok(())) => tracing::debug!(%peer, "answered a request for metrics"),
                            Ok(Err(error)) => tracing::debug!(%peer, %error, "a request for metrics failed"),
                            Err(_) => tracing::debug!(%peer, "a request for metrics took too long"),
                        }
                        drop(place);
                    });
                }
                Ok(Entry::Stranger(_)) => {}
                Err(refusal) => tracing::debug!(%peer, %refusal, "refused a connection for metrics"),
            },
            Err(error) => {
                if let Some(untold) = not_accepted.tell(Instant::now()) {
                    tracing::warn!(%error, untold, "cannot accept a connection to the metrics");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Reads a request, answers it, and waits for the client to end the connection: with bytes unread, ending it first
/// could take the answer away again.
async fn converse(mut stream: TcpStream, render: &Render) -> io::Result<()> {
    let mut request = Vec::with_capacity(1024);
    let answer = loop {
        if let Some(answer) = answer(&request, render) {
            break answer;
        }
        let left = REQUEST_BYTES + 1 - request.len();
        if (&mut stream).take(left as u64).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// The answer to what has come of a request, or `None` if more has to come.
fn answer(request: &[u8], render: &Render) -> Option<Vec<u8>> {
    let mut fields = [EMPTY_HEADER; REQUEST_FIELDS];
    let mut parsed = Request::new(&mut fields);
    let is_whole = match parsed.parse(request) {
        Ok(Status::Complete(octets)) => octets <= REQUEST_BYTES,
        Ok(Status::Partial) if request.len() <= REQUEST_BYTES => return None,
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => false,
        Err(_) => return Some(error("400 Bad Request", "")),
    };
    if !is_whole {
        return Some(error("431 Request Header Fields Too Large", ""));
    }
    let path = parsed.path.unwrap_or_default().split('?').next();
    let with_body = match parsed.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Some(error("405 Method Not Allowed", "Allow: GET, HEAD\r\n")),
    };
    if path != Some(PATH) {
        return Some(error("404 Not Found", ""));
    }
    Some(response("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", &render(), with_body))
}

fn error(status: &str, fields: &str) -> Vec<u8> {
    let fields = format!("{fields}Content-Type: text/plain; charset=utf-8\r\n");
    response(status, &fields, &format!("{status}: the numbers are at {PATH}\n"), true)
}

fn response(status: &str, fields: &str, body: &str, with_body: bool) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), if with_body { body.as_bytes() } else { &[] }].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &str) -> Option<String> {
        let render: Render = Arc::new(|| "number 1\n".to_owned());
        answer(request.as_bytes(), &render).map(|answer| String::from_utf8(answer).unwrap())
    }

    fn status(request: &str) -> String {
        ask(request).expect("an answer")[9..12].to_owned()
    }

    #[test]
    fn the_numbers_are_told_to_who_asks_for_them() {
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\nContent-Length: 9\r\n"), "{head}");
        assert!(head.ends_with("\r\nConnection: close"), "{head}");
        assert_eq!(body, "number 1\n");
        assert!(ask("GET /metrics?name[]=x HTTP/1.0\r\n\r\n").unwrap().ends_with("\r\n\r\nnumber 1\n"));
        let head = ask("HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(head.ends_with("\r\n\r\n") && head.contains("\r\nContent-Length: 9\r\n"), "{head}");
    }

    #[test]
    fn what_is_asked_wrongly_is_told_so() {
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
        for path in ["/", "/metrics/", "/metric", "http://here/metrics", "*"] {
            assert_eq!(status(&format!("GET {path} HTTP/1.1\r\n\r\n")), "404", "{path}");
        }
        for wrong in
            ["\u{16}\u{3}\u{1}", "GET /metrics HTTP/2.0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\r\nno field\r\n\r\n"]
        {
            assert_eq!(status(wrong), "400", "{wrong:?}");
        }
        assert_eq!(ask("GET /metrics HTTP/1.1\r\n"), None, "the rest may come");
        assert_eq!(ask(""), None);
    }

    #[test]
    fn a_request_ends_at_its_limits() {
        let with = |len: usize| {
            let (before, behind) = ("GET /metrics HTTP/1.1\r\nX: ", "\r\n\r\n");
            format!("{before}{}{behind}", "x".repeat(len - before.len() - behind.len()))
        };
        assert_eq!(status(&with(REQUEST_BYTES)), "200");
        assert_eq!(status(&with(REQUEST_BYTES + 1)), "431");
        assert_eq!(ask(&with(REQUEST_BYTES + 4)[..REQUEST_BYTES]), None);
        assert_eq!(status(&with(REQUEST_BYTES + 4)[..=REQUEST_BYTES]), "431", "without its end");
        let fields = |count: usize| format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(count));
        assert_eq!(
            (status(&fields(REQUEST_FIELDS)), status(&fields(REQUEST_FIELDS + 1))),
            ("200".into(), "431".into())
        );
    }
}
