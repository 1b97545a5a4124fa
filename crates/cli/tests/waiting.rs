//! A command tells its user that it waits for a server that does not answer.

mod common;

use common::{Server, cache, rpcrdma, served};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    process::{ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// The time limit of a line that comes after 5 s, and then after 10.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pings for 10 s, so that also a busy machine can stop the server meanwhile.
const PING: [&str; 5] = ["ping", "-c", "100", "-i", "0.1"];

fn signal(server: &Server, name: &str) {
    let done = Command::new("kill").args([name, &server.pid().to_string()]).status().unwrap();
    assert!(done.success());
}

/// The lines that a command writes to its standard error output, as they come.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// The form of lines on the standard error output.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Text,
    Json,
}

impl Form {
    /// The message of a line that reports no error.
    fn message(self, line: &str) -> String {
        match self {
            Form::Text => line.strip_prefix("rpcrdma: ").unwrap_or_else(|| panic!("{line}")).to_owned(),
            Form::Json => {
                let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                told["warning"]["message"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned()
            }
        }
    }
}

/// Reads a time, in seconds, as the command writes it: `5 s`, `2 min`, `3 min 10 s`.
fn seconds(text: &str) -> Option<u64> {
    let words: Vec<_> = text.split(' ').collect();
    let parts = words.chunks(2).map(|part| match part {
        [number, "s"] => number.parse::<u64>().ok(),
        [number, "min"] => Some(number.parse::<u64>().ok()? * 60),
        _ => None,
    });
    parts.sum()
}

/// A wait that the command reports: its age, and how old it may become.
#[derive(Debug)]
struct Told {
    age: u64,
    limit: u64,
}

impl Told {
    fn new(message: &str) -> Self {
        let read = || {
            let (server, times) = message.strip_prefix("waiting for ")?.split_once(" since ")?;
            let (age, limit) = times.split_once(", giving up at ")?;
            let told = Self { age: seconds(age)?, limit: seconds(limit)? };
            server.starts_with("127.0.0.1:").then_some(told)
        };
        let told = read().unwrap_or_else(|| panic!("{message}"));
        assert!((5..=told.limit).contains(&told.age), "{message}");
        told
    }
}

/// The command reports the wait, and again at twice the age.
fn is_told_again(first: &Told, second: &Told) {
    assert!(second.age > first.age, "{first:?} {second:?}");
    // Both ages are rounded to the nearest second: 5.5 s are 6 s, and twice as much is 11 s.
    assert!(second.age + 1 >= first.age * 2, "{first:?} {second:?}");
    // What the transports wait: 20 s of silence, 25 s for the answer to a probe after it, and 120 s without a
    // connection.
    assert_eq!(second.limit, 165, "{second:?}");
}

/// Stops a server while a command runs, or before, and continues it after the command has reported the wait twice.
fn waits(stop_first: bool, form: Form, url: impl Fn(&Server) -> String, command: &[&str]) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = served(scratch.path());
    let server = Server::start(&directory, &scratch.path().join("state"), &["--tcp", "127.0.0.1:0"]);
    let mut child = rpcrdma();
    child.arg(command[0]).arg(url(&server)).args(&command[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
    if form == Form::Json {
        child.arg("--json");
    }
    if stop_first {
        signal(&server, "-STOP");
    }
    let begin = Instant::now();
    let mut child = child.spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    if !stop_first {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        signal(&server, "-STOP");
    }
    let first = Told::new(&form.message(&said.recv_timeout(PATIENCE).unwrap()));
    assert!(begin.elapsed() >= Duration::from_secs(5), "{first:?}");
    if !stop_first {
        is_told_again(&first, &Told::new(&form.message(&said.recv_timeout(PATIENCE).unwrap())));
    }
    signal(&server, "-CONT");
    // On a slow machine the command may have reported the wait once more.
    let last = loop {
        let message = form.message(&said.recv_timeout(PATIENCE).unwrap());
        if !message.starts_with("waiting for ") {
            break message;
        }
    };
    assert!(last.starts_with("127.0.0.1:") && last.contains(" answers again after "), "{last}");
    let mut rest = String::new();
    answers.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    // All other lines have the same form.
    for line in said {
        form.message(&line);
    }
}

#[test]
fn a_connection_that_brings_nothing_is_told() {
    waits(false, Form::Text, |server| server.url(""), &PING);
    waits(false, Form::Text, |server| server.tcp_url(""), &PING);
}

#[test]
fn a_server_that_does_not_answer_at_first_is_told() {
    waits(true, Form::Text, |server| server.url(""), &["ls"]);
    waits(true, Form::Text, |server| server.url(""), &["ping", "-c", "1"]);
}

/// A program that reads the lines finds nothing else among them.
#[test]
fn with_json_every_line_is_an_object() {
    waits(false, Form::Json, |server| server.url(""), &PING);
    waits(true, Form::Json, |server| server.url(""), &["ls"]);
}

/// The ages in the drawn waits, in order, with repetitions.
fn drawn(said: &str) -> Vec<u64> {
    let ages = said.split("waiting for 127.0.0.1:").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once(" since ")?;
        // An incomplete line counts when its rest has arrived.
        seconds(rest.split_once(", ")?.0)
    });
    ages.collect()
}

/// What a terminal shows, as it arrives.
fn shown(mut terminal: ChildStdout) -> Receiver<String> {
    let (sender, shown) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        // If the other end of the terminal is gone, reading fails.
        while let Ok(bytes @ 1..) = terminal.read(&mut buffer) {
            let _ = sender.send(String::from_utf8_lossy(&buffer[..bytes]).into_owned());
        }
    });
    shown
}

/// The command draws a line on a terminal.
#[test]
fn on_a_terminal_a_line_is_drawn() {
    let scratch = tempfile::tempdir().unwrap();
    let server = Server::start(&served(scratch.path()), &scratch.path().join("state"), &[]);
    signal(&server, "-STOP");
    let shell = format!("{} ls '{}'", env!("CARGO_BIN_EXE_rpcrdma"), server.url(""));
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &shell, "/dev/null"]).env("XDG_CACHE_HOME", cache()).env("TERM", "xterm");
    let Ok(mut child) = terminal.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() else {
        eprintln!("not run: there is no script(1) to make a terminal");
        return;
    };
    let (begin, shown, mut said) = (Instant::now(), shown(child.stdout.take().unwrap()), String::new());
    // The same age may be drawn more than once: the command draws the line again when the wait is older.
    let is_drawn_again = |said: &str| drawn(said).windows(2).any(|ages| ages[0] < ages[1]);
    while !is_drawn_again(&said) {
        let more = shown.recv_timeout(PATIENCE.saturating_sub(begin.elapsed()));
        let more = more.unwrap_or_else(|error| panic!("{error}: {said:?}"));
        said += &more;
    }
    assert!(drawn(&said)[0] >= 5, "{said:?}");
    signal(&server, "-CONT");
    shown.iter().for_each(|more| said += &more);
    assert!(child.wait().unwrap().success(), "{said:?}");
    assert!(!said.contains("answers again"), "the line is taken away: {said:?}");
}
