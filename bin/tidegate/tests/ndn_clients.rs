//! Clients of other projects at the named-data forwarder: python-ndn and NDNts, each unchanged; and who speaks no NDN.

mod common;
#[expect(dead_code, reason = "the tests of the forwarder itself use the rest")]
#[path = "common/ndn_node.rs"]
mod ndn_node;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{finish, wait_until};
use lab::need;
use ndn_node::{LOOPBACK, Node, PATIENCE, Process, channel};
use serde_json::Value;

/// Makes a Python environment with python-ndn, once a target directory; `None` if that cannot be.
fn python_ndn() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-ndn");
    let python = directory.join("bin/python3");
    let has_it = |python: &Path| {
        let mut command = Command::new(python);
        let status = command.args(["-c", "import ndn.app"]).status();
        status.is_ok_and(|status| status.success())
    };
    if has_it(&python) {
        return Some(python);
    }
    let mut venv = Command::new("python3");
    let made = venv.args(["-m", "venv"]).arg(&directory).status();
    if !made.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut pip = Command::new(&python);
    let installed = pip
        .args(["-m", "pip", "install", "-q", "--disable-pip-version-check"])
        .args(["--timeout", "20", "python-ndn==0.5.2"])
        .status();
    (installed.is_ok_and(|status| status.success()) && has_it(&python)).then_some(python)
}

const PRODUCER: &str = r#"
import sys
from ndn.app import NDNApp
from ndn.encoding import Name
app = NDNApp()
@app.route('/py')
def on_interest(name, param, _app_param):
    app.put_data(name, content=b'from python ' + Name.to_bytes(name)[-3:], freshness_period=10000, digest_sha256=True)
async def after():
    print('ready', flush=True)
app.run_forever(after_start=after())
"#;

const CONSUMER: &str = r#"
import sys
from ndn.app import NDNApp
from ndn.types import InterestNack, InterestTimeout
app = NDNApp()
async def main():
    try:
        name, meta, content = await app.express_interest(sys.argv[1], must_be_fresh=True, can_be_prefix=True, lifetime=4000)
        print(bytes(content).decode(), flush=True)
    except InterestNack as nack:
        print('nack', nack.reason, flush=True)
    app.shutdown()
app.run_forever(after_start=main())
"#;

#[test]
fn python_ndn_serves_fetches_and_manages() {
    let test = "python_ndn_serves_fetches_and_manages";
    if !need::program(test, "python3") {
        return;
    }
    let Some(python) = python_ndn() else {
        need::need(test, "python3-venv and python-ndn from PyPI", false);
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path(), None, "", LOOPBACK);
    let home = directory.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let program = |transport: &str| {
        let mut command = Command::new(&python);
        command
            .env("NDN_CLIENT_TRANSPORT", transport)
            .env("HOME", &home);
        command
    };
    // Without a key store, python-ndn signs nothing.
    let pyndnsec = python.with_file_name("pyndnsec");
    for arguments in [&["Init-Pib"][..], &["New-Item", "/me"]] {
        let mut command = Command::new(&pyndnsec);
        let made = finish(command.env("HOME", &home).args(arguments));
        assert_eq!(
            made.code, 0,
            "{arguments:?}: {} {}",
            made.stdout, made.stderr
        );
    }
    let unix = node.transport();
    let tcp = channel(&node, "tcp4").replace("tcp4", "tcp");
    let mut producer = program(&unix);
    producer.args(["-c", PRODUCER]).stdout(Stdio::piped());
    let mut producer = Process(producer.spawn().unwrap());
    let mut line = String::new();
    let mut stdout = BufReader::new(producer.0.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // Our tool and theirs get the same, by Unix socket and TCP.
    let mut ours = node.run(&["peek", "/py/abc", "-l", "2000"]);
    assert!(wait_until(PATIENCE, || {
        ours = node.run(&["peek", "/py/abc", "-l", "2000"]);
        ours.code == 0
    }));
    assert_eq!(ours.stdout, "from python abc");
    for transport in [&unix, &tcp] {
        let theirs = finish(program(transport).args(["-c", CONSUMER, "/py/abc"]));
        assert_eq!(
            theirs.stdout, "from python abc\n",
            "{transport}: {}",
            theirs.stderr
        );
    }
    let nacked = finish(program(&unix).args(["-c", CONSUMER, "/nobody"]));
    assert_eq!(nacked.stdout, "nack 150\n", "{}", nacked.stderr);
    // And what ours serves.
    let (_server, _) = node.serve(&["put", "/ours"], Some(b"from the other side"));
    let fetched = finish(program(&unix).args(["-c", CONSUMER, "/ours"]));
    assert_eq!(
        fetched.stdout, "from the other side\n",
        "{}",
        fetched.stderr
    );
}

/// Installs NDNts, once a target directory; returns the place of its client program, or `None` if that cannot be.
fn ndnts() -> Option<PathBuf> {
    const PROGRAM: &str = include_str!("programs/ndnts.mjs");
    const VERSION: &str = "0.0.20250307";
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ndnts");
    std::fs::create_dir_all(&directory).ok()?;
    if !directory.join("node_modules/@ndn/ws-transport").exists() {
        let names = [
            "endpoint",
            "nfdmgmt",
            "node-transport",
            "packet",
            "segmented-object",
            "ws-transport",
        ];
        let packages = names.map(|name| format!("@ndn/{name}@{VERSION}"));
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
        ]);
        let installed = npm.arg(&directory).args(packages).status();
        if !installed.is_ok_and(|status| status.success()) {
            return None;
        }
    }
    let program = directory.join("ndnts.mjs");
    std::fs::write(&program, PROGRAM).ok()?;
    Some(program)
}

#[test]
fn ndnts_serves_fetches_and_manages_by_unix_tcp_and_websocket() {
    let test = "ndnts_serves_fetches_and_manages_by_unix_tcp_and_websocket";
    if !need::program(test, "node") || !need::program(test, "npm") {
        return;
    }
    let Some(program) = ndnts() else {
        need::need(test, "NDNts from npm", false);
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let more = format!("{LOOPBACK}websocket = [\"127.0.0.1:0\"]\n");
    let node = Node::start(directory.path(), None, "", &more);
    let client = |uri: &str, arguments: &[&str]| {
        let mut command = Command::new("node");
        command.arg(&program).arg(uri).args(arguments);
        command
    };
    let websocket = channel(&node, "ws");
    let uris = [node.transport(), channel(&node, "tcp4"), websocket.clone()];
    // The producer is behind a WebSocket.
    let mut serve = client(&websocket, &["serve", "/ndnts/object", "2000000"]);
    let mut producer = Process(serve.stdout(Stdio::piped()).spawn().unwrap());
    let mut served = String::new();
    let mut stdout = BufReader::new(producer.0.stdout.take().unwrap());
    stdout.read_line(&mut served).unwrap();
    assert!(served.starts_with("2000000 "), "{served}");
    let is_registered = || node.run(&["route", "show", "/ndnts/object"]).code == 0;
    assert!(wait_until(PATIENCE, is_registered));
    for uri in &uris {
        let fetched = finish(&mut client(uri, &["fetch", "/ndnts/object"]));
        assert_eq!(fetched.stdout, served, "{uri}: {}", fetched.stderr);
    }
    for uri in &uris {
        let managed = finish(&mut client(uri, &["manage"]));
        assert_eq!(managed.code, 0, "{uri}: {}", managed.stderr);
        let found: Value = serde_json::from_str(&managed.stdout).unwrap();
        assert_eq!(found["face"]["uri"], "udp4://127.0.0.1:19", "{found}");
        assert_eq!(
            (&found["face"]["mtu"], &found["cost"]),
            (&1300.into(), &7.into()),
            "{found}"
        );
        assert_eq!(found["refused"], 400, "{found}");
        assert!(
            found["strategy"].as_str().unwrap().contains("multicast"),
            "{found}"
        );
    }
    // Its content is no text.
    let mut peek = node.command(&["peek", "-P", "/ndnts/object", "-l", "1000"]);
    assert!(peek.stdout(Stdio::null()).status().unwrap().success());
    let faces = node.json(&["face", "list", "--scheme", "wsclient"]);
    assert_eq!(faces.as_array().unwrap().len(), 1, "{faces}");
    drop(producer);
    let is_gone =
        || node.json(&["face", "list", "--scheme", "wsclient"]) == Value::Array(Vec::new());
    assert!(wait_until(PATIENCE, is_gone), "a face ends with its client");
}

#[test]
fn who_speaks_no_websocket_is_refused_and_holds_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(
        directory.path(),
        None,
        "",
        &format!("{LOOPBACK}websocket = [\"127.0.0.1:0\"]\n"),
    );
    let address = channel(&node, "ws").replace("ws://", "");
    let silent: Vec<_> = (0..100)
        .map(|_| std::net::TcpStream::connect(&address).unwrap())
        .collect();
    let mut plain = std::net::TcpStream::connect(&address).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut plain, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(
        node.json(&["face", "list", "--scheme", "wsclient"]),
        Value::Array(Vec::new())
    );
    drop(silent);
}
