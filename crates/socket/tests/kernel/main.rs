//! Hosts of ours against programs of the kernel's stack, over veth between network namespaces. The examples run
//! as users run them.

mod relay;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lab::Namespace;
use lab::topology::{Line, LineOptions};

const KERNEL: &str = "10.1.0.2";
const OURS: &str = "10.1.0.1";
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a kernel at one end of a veth, and a device for a host of ours at the other.
fn wire(prefix: &str, options: LineOptions) -> Line {
    Line::new(prefix, options).expect("namespaces")
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of an example of this crate.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let target = test.ancestors().nth(2).expect("the target directory");
    let path = target.join("examples").join(name);
    assert!(
        path.is_file(),
        "no {}: run `cargo build --examples`, or all tests of the package",
        path.display()
    );
    path
}

/// Starts a program in a namespace, not to be waited for.
fn start(namespace: &Namespace, program: &Path, arguments: &[&str]) -> Program {
    let child = namespace
        .command(program)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn();
    Program(child.expect("the program starts"))
}

/// Starts an example on our device.
fn serve(line: &Line, name: &str) -> Program {
    let address = format!("{OURS}/24");
    let device = &line.left.node_device;
    start(&line.node, &example(name), &[device, &address])
}

/// Connects from the kernel's side, until the server listens.
fn connect(line: &Line, port: u16) -> TcpStream {
    let to: SocketAddr = (OURS.parse::<std::net::IpAddr>().expect("an address"), port).into();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let tried = line
            .left
            .namespace
            .run(|| TcpStream::connect_timeout(&to, Duration::from_secs(2)))
            .expect("the namespace");
        match tried {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                return stream;
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a program in the kernel's namespace to its end; returns what it wrote.
fn run(line: &Line, program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = line
        .left
        .namespace
        .command(program)
        .args(arguments)
        .output()
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    output.stdout
}

fn needs(test: &str, programs: &[&str]) -> bool {
    lab::need::root(test) && programs.iter().all(|name| lab::need::program(test, name))
}

#[test]
fn curl_downloads_from_and_uploads_to_axum() {
    if !needs("curl_downloads_from_and_uploads_to_axum", &["curl"]) {
        return;
    }
    let line = wire("tg-skc", LineOptions::default());
    let _server = serve(&line, "http_server");
    drop(connect(&line, 80));
    let curl = |arguments: &[&str]| {
        let common = ["-sS", "--fail", "--max-time", "60"];
        run(&line, "curl", &[&common, arguments].concat())
    };
    let hello = curl(&[&format!("http://{OURS}/")]);
    assert_eq!(hello, b"hello from user space\n");
    let count = 8_000_003;
    let got = curl(&[&format!("http://{OURS}/bytes/{count}")]);
    assert_eq!(got.len(), count);
    assert!(
        got.iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at * 7) as u8)
    );
    let directory = std::env::temp_dir().join(format!("tidegate-curl-{}", std::process::id()));
    std::fs::write(&directory, &got).expect("a file");
    let path = directory.to_str().expect("a path");
    let answer = curl(&["-T", path, &format!("http://{OURS}/upload")]);
    std::fs::remove_file(&directory).expect("the file");
    let sum: u64 = got.iter().map(|byte| u64::from(*byte)).sum();
    assert_eq!(String::from_utf8_lossy(&answer), format!("{count} {sum}\n"));
    // Many in one connection, and many connections at once.
    let urls = vec![format!("http://{OURS}/bytes/1000"); 20];
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    assert_eq!(curl(&urls).len(), 20_000);
    assert_eq!(curl(&[&["-Z"], urls.as_slice()].concat()).len(), 20_000);
}

#[test]
fn downloads_from_a_kernel_server() {
    if !needs("downloads_from_a_kernel_server", &["python3"]) {
        return;
    }
    let line = wire("tg-skd", LineOptions::default());
    let directory = std::env::temp_dir().join(format!("tidegate-http-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let data: Vec<u8> = (0..6_000_001_u32)
        .map(|at| ((at * 11) >> 2) as u8)
        .collect();
    std::fs::write(directory.join("file"), &data).expect("a file");
    let serves = ["-m", "http.server", "8000", "--bind", KERNEL, "--directory"];
    let path = directory.to_str().expect("a path");
    let python = lab::need::find_program("python3").expect("python3");
    let _server = start(
        &line.left.namespace,
        &python,
        &[&serves, [path].as_slice()].concat(),
    );
    let out = directory.join("out");
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Until the server listens, the connection is refused.
        let output = line
            .node
            .command(example("download"))
            .args([&line.left.node_device, &format!("{OURS}/24")])
            .args([&format!("{KERNEL}:8000"), "/file"])
            .arg(&out)
            .output()
            .expect("the example runs");
        if output.status.success() {
            break;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("ConnectionRefused"), "{errors}");
        assert!(Instant::now() < deadline, "{errors}");
    }
    let got = std::fs::read(&out).expect("the download");
    std::fs::remove_dir_all(&directory).expect("the directory");
    assert!(got == data, "{} of {} bytes", got.len(), data.len());
}

/// Sends to the echo server and back, both at once.
fn echo(mut stream: TcpStream, bytes: usize) {
    let data: Vec<u8> = (0..bytes).map(|at| ((at * 13) >> 3) as u8).collect();
    let mut back = stream.try_clone().expect("a handle");
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        stream.write_all(&sent).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("FIN");
    });
    let mut got = Vec::new();
    back.read_to_end(&mut got).expect("the echo");
    writer.join().expect("the writer");
    assert!(got == data, "{} of {} bytes", got.len(), data.len());
}

#[test]
fn echoes_to_a_kernel_client_whatever_the_mtu() {
    if !needs("echoes_to_a_kernel_client_whatever_the_mtu", &[]) {
        return;
    }
    for (prefix, mtu) in [("tg-ske", 1500), ("tg-skm", 600), ("tg-skj", 9000)] {
        let options = LineOptions {
            mtu,
            ..LineOptions::default()
        };
        let line = wire(prefix, options);
        let _server = serve(&line, "echo");
        echo(connect(&line, 7), 2_000_000);
        // Interactive: one byte after the other.
        let mut stream = connect(&line, 7);
        stream.set_nodelay(true).expect("an option");
        for byte in 0..100 {
            stream.write_all(&[byte]).expect("sent");
            let mut back = [0];
            stream.read_exact(&mut back).expect("an echo");
            assert_eq!(back, [byte]);
        }
    }
}

#[test]
fn answers_datagrams_of_a_kernel_client() {
    if !needs("answers_datagrams_of_a_kernel_client", &[]) {
        return;
    }
    let line = wire("tg-sku", LineOptions::default());
    let _server = serve(&line, "udp_time");
    let socket = line
        .left
        .namespace
        .run(|| UdpSocket::bind((KERNEL, 0)).expect("a socket"))
        .expect("the namespace");
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("a timeout");
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = [0; 128];
    // Until the server listens, nothing or an error comes back.
    let n = loop {
        let asked = socket.send_to(b"what time is it", (OURS, 37));
        if let Ok((n, _)) = asked.and_then(|_| socket.recv_from(&mut bytes)) {
            break n;
        }
        assert!(Instant::now() < deadline, "no answer");
    };
    let answer = String::from_utf8_lossy(&bytes[..n]).into_owned();
    let (seconds, said) = answer.split_once(' ').expect("two parts");
    assert!(seconds.parse::<u64>().expect("a number") > 1_700_000_000);
    assert_eq!(said, "what time is it");
}

/// Two workers on a device whose own hash is not ours: frames are handed over, and all connections work.
#[test]
fn two_workers_share_a_device() {
    let test = "two_workers_share_a_device";
    if !needs(test, &[]) {
        return;
    }
    let line = wire("tg-skw", LineOptions::default());
    let host = line
        .node
        .run(|| {
            socket::Host::on_interface(&line.left.node_device)
                .address(&format!("{OURS}/24"))
                .workers(2)
                .start()
                .expect("a host")
        })
        .expect("the namespace");
    // Towards us: accepted on both workers.
    let listener = socket::TcpListener::bind(&host, "0.0.0.0:7").expect("a listener");
    let server = std::thread::spawn(move || {
        for _ in 0..16 {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("data");
            stream.write_all(&got).expect("an echo");
        }
    });
    for n in 0..16 {
        echo(connect(&line, 7), 1000 + n);
    }
    server.join().expect("the server");
    // From us: the port that was chosen brings the answers to the worker that asked.
    let theirs = line
        .left
        .namespace
        .run(|| std::net::TcpListener::bind((KERNEL, 9)).expect("a listener"))
        .expect("the namespace");
    let server = std::thread::spawn(move || {
        for _ in 0..16 {
            let (mut stream, _) = theirs.accept().expect("a connection");
            stream.write_all(b"welcome").expect("sent");
        }
    });
    for _ in 0..16 {
        let mut stream = socket::TcpStream::connect(&host, (KERNEL, 9)).expect("a connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the end");
        assert_eq!(text, "welcome");
    }
    server.join().expect("the server");
}

/// One device, two stacks: the kernel keeps its address, ours has another.
#[test]
fn the_kernel_keeps_its_own_addresses() {
    let test = "the_kernel_keeps_its_own_addresses";
    if !needs(test, &[]) {
        return;
    }
    let line = wire("tg-skk", LineOptions::default());
    let kernels: std::net::IpAddr = "10.1.0.9".parse().expect("an address");
    let mut links = line.node.links().expect("netlink");
    links
        .add_address(&line.left.node_device, kernels, 24)
        .expect("an address");
    let theirs = line
        .node
        .run(|| std::net::TcpListener::bind((kernels, 7)).expect("a listener"))
        .expect("the namespace");
    let _ours = serve(&line, "echo");
    echo(connect(&line, 7), 300_000);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = theirs.accept().expect("a connection");
        stream.write_all(b"the kernel").expect("sent");
    });
    let mut stream = line
        .left
        .namespace
        .run(|| TcpStream::connect((kernels, 7)).expect("a connection"))
        .expect("the namespace");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the end");
    assert_eq!(text, "the kernel");
    server.join().expect("the server");
    echo(connect(&line, 7), 300_000);
}
