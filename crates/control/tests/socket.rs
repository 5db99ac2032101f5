//! The control socket: server and client through a real Unix socket.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::api::{
    ApiError, CaptureRequest, ErrorCode, Event, FramesInfo, NodeInfo, Reply, Request, Stats,
    Timestamp,
};
use control::socket::{Answer, BindError, Client, ClientError, Peer, Server};

fn stats() -> Stats {
    Stats {
        firewall: None,
        at: Timestamp::UNIX_EPOCH,
        node: NodeInfo {
            name: "test".into(),
            version: "0".into(),
            pid: std::process::id(),
            started_at: Timestamp::UNIX_EPOCH,
            uptime_ns: 1,
            config_file: None,
            config_generation: 1,
            idle_mode: "hybrid".into(),
            latency_budget_us: 100,
            frames: FramesInfo {
                per_worker: 64,
                frame_bytes: 2048,
                pages: "normal 4 KiB".into(),
                refused: None,
            },
        },
        workers: Vec::new(),
        ports: Vec::new(),
        links: Vec::new(),
        stages: Vec::new(),
        drops: Vec::new(),
        ndn: None,
    }
}

fn answer(request: Request, peer: Peer) -> Answer {
    Answer::Reply(match request {
        Request::Stats => Reply::Stats(Box::new(stats())),
        Request::Routes => Reply::Routes(Vec::new()),
        Request::Reload if peer.may_change() => Reply::Reloaded {
            generation: 2,
            needs_restart: Vec::new(),
        },
        Request::Capture(_) => {
            return Answer::Capture(Box::new(|sink| {
                sink.write_all(b"pcapng")?;
                while !sink.is_closed() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(())
            }));
        }
        _ => Reply::Error(ApiError {
            code: ErrorCode::NotFound,
            message: "nothing here".into(),
            remedy: Some("ask for stats".into()),
        }),
    })
}

fn start(path: &Path) -> Server {
    Server::start(path, Arc::new(answer)).expect("the socket opens")
}

#[test]
fn request_gets_its_reply() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/control.sock");
    let _server = start(&path);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660, "owner and group only");
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.stats().unwrap(), stats());
    assert_eq!(client.routes().unwrap(), []);
    let ClientError::Api(error) = client.neighbours().unwrap_err() else {
        panic!("the node's own error is lost");
    };
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(matches!(
        client.request(&Request::Reload).unwrap(),
        Reply::Reloaded { generation: 2, .. }
    ));
}

#[test]
fn watch_gives_counters_and_events_until_the_node_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let server = start(&path);
    let mut events = Client::connect(&path)
        .unwrap()
        .watch(Duration::from_millis(50))
        .unwrap();
    assert!(matches!(events.next(), Some(Ok(Event::Stats(_)))));
    let at = Timestamp::UNIX_EPOCH;
    server.publish(&Event::Reloaded { at, generation: 7 });
    let told = events
        .by_ref()
        .take(20)
        .any(|event| matches!(event, Ok(Event::Reloaded { generation: 7, .. })));
    assert!(told, "the event did not reach the watcher");
    let before = Instant::now();
    drop(server);
    assert!(
        before.elapsed() < Duration::from_secs(2),
        "stopping took long"
    );
    assert!(events.all(|event| event.is_ok()), "the stream ends cleanly");
    assert!(!path.exists(), "the socket is left behind");
    assert!(matches!(
        Client::connect(&path),
        Err(ClientError::NotRunning { .. })
    ));
}

#[test]
fn capture_switches_to_bytes_and_ends_with_its_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let server = start(&path);
    let mut bytes = Client::connect(&path)
        .unwrap()
        .capture(CaptureRequest::default())
        .unwrap();
    let mut head = [0; 6];
    bytes.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"pcapng");
    drop(bytes);
    let before = Instant::now();
    drop(server);
    assert!(
        before.elapsed() < Duration::from_secs(1),
        "the capture outlived its reader"
    );
}

#[test]
fn too_short_an_interval_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let _server = start(&path);
    let error = Client::connect(&path)
        .unwrap()
        .watch(Duration::from_millis(1))
        .unwrap_err();
    assert!(matches!(
        error,
        ClientError::Api(ApiError {
            code: ErrorCode::Usage,
            ..
        })
    ));
}

#[test]
fn stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead node's socket");
    let server = start(&path);
    let error = Server::start(&path, Arc::new(answer)).unwrap_err();
    let BindError::InUse { pid, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(pid, std::process::id().cast_signed());
    Client::connect(&path).unwrap().stats().unwrap();
    drop(server);
}

#[test]
fn file_of_another_kind_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    std::fs::write(&path, "precious").unwrap();
    let error = Server::start(&path, Arc::new(answer)).unwrap_err();
    assert!(matches!(error, BindError::NotASocket { .. }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let _server = start(&path);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0, 0, 0, 2, b'{', b'}'],
        &[0xff; 64],
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut rest = Vec::new();
        // closed with bytes unread, the system may report a reset instead of an end
        let _ = stream.read_to_end(&mut rest);
    }
    Client::connect(&path).unwrap().stats().unwrap();
}
