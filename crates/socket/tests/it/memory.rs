//! Two hosts on a link in memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::mem;
use socket::{DriverSpec, Host, TcpListener, TcpStream, UdpSocket};

/// Makes two hosts, 192.0.2.1 and .2, with so many workers each.
pub(crate) fn hosts(workers: u16) -> [Host; 2] {
    let (left, right) = mem::link(mem::LinkSpec {
        queues: workers,
        ..mem::LinkSpec::default()
    });
    [(left, 1), (right, 2)].map(|(end, n)| {
        Host::builder(DriverSpec::Mem(end))
            .workers(workers)
            .sockets(256)
            .address(&format!("192.0.2.{n}/24"))
            .address(&format!("2001:db8::{n}/64"))
            .start()
            .expect("a host")
    })
}

/// Bytes that tell their place.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

fn transfer(hosts: &[Host; 2], to: &str, len: usize, seed: u64) {
    let [server, client] = hosts;
    let listener = TcpListener::bind(server, to).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let data = pattern(len, seed);
    let expected = data.clone();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("all data");
        assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
        stream
            .write_all(&got[..got.len().min(100_000)])
            .expect("an echo");
    });
    let mut stream = TcpStream::connect(client, address).expect("a connection");
    stream.write_all(&data).expect("all sent");
    stream.shutdown(Shutdown::Write).expect("FIN");
    assert_eq!(
        stream.write(b"x").unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("the echo");
    assert!(back[..] == data[..len.min(100_000)]);
    receiver.join().expect("the receiver");
}

#[test]
fn bytes_arrive_as_they_were_sent() {
    let hosts = hosts(1);
    for len in [0, 1, 1460, 65_536, 262_144, 3_000_001] {
        transfer(&hosts, "192.0.2.1:8080", len, len as u64);
    }
    transfer(&hosts, "[2001:db8::1]:8080", 1_000_003, 5);
    transfer(&hosts, "192.0.2.1:0", 100_000, 6);
}

#[test]
fn every_worker_accepts_and_connects() {
    const CONNECTIONS: usize = 60;
    let [server, client] = hosts(2);
    let listener = TcpListener::bind(&server, "0.0.0.0:9").expect("a listener");
    let echo = std::thread::spawn(move || {
        let mut threads = Vec::new();
        for _ in 0..CONNECTIONS {
            let (mut stream, _) = listener.accept().expect("a connection");
            threads.push(std::thread::spawn(move || {
                let mut bytes = [0; 300];
                loop {
                    let n = stream.read(&mut bytes).expect("data");
                    if n == 0 {
                        return;
                    }
                    stream.write_all(&bytes[..n]).expect("an echo");
                }
            }));
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("an echo"));
    });
    let client = Arc::new(client);
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|n| {
            let client = Arc::clone(&client);
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(&client, "192.0.2.1:9").expect("a connection");
                stream.set_nodelay(true).expect("an option");
                assert!(stream.nodelay().expect("an option"));
                for round in 0..20 {
                    let data = pattern(1 + (n * 7 + round * 13) % 300, n as u64);
                    stream.write_all(&data).expect("sent");
                    let mut back = vec![0; data.len()];
                    stream.read_exact(&mut back).expect("an echo");
                    assert_eq!(back, data);
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("a client"));
    echo.join().expect("the server");
}

#[test]
fn sockets_are_given_back() {
    let hosts = hosts(1);
    let listener = TcpListener::bind(&hosts[0], "192.0.2.1:80").expect("a listener");
    // More than there are sockets, one after the other.
    for round in 0..600 {
        let mut client = TcpStream::connect(&hosts[1], "192.0.2.1:80").expect("a connection");
        let (mut server, _) = listener.accept().expect("a connection");
        server.write_all(b"one").expect("sent");
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).expect("all");
        assert_eq!(text, "one", "round {round}");
    }
}

#[test]
fn a_slow_reader_slows_the_writer_and_nothing_is_lost() {
    let hosts = hosts(1);
    let listener = TcpListener::bind(&hosts[0], "192.0.2.1:80").expect("a listener");
    let mut writer = TcpStream::connect(&hosts[1], "192.0.2.1:80").expect("a connection");
    let (mut reader, _) = listener.accept().expect("a connection");
    writer
        .set_write_timeout(Some(Duration::from_millis(300)))
        .expect("a timeout");
    let chunk = pattern(65_536, 3);
    let mut sent = 0;
    // Rings, buffers and windows fill up.
    let error = loop {
        match writer.write(&chunk[sent % chunk.len()..]) {
            Ok(n) => sent += n,
            Err(error) => break error,
        }
        assert!(sent < 64 << 20, "nothing stops the writer");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    writer.shutdown(Shutdown::Write).expect("FIN");
    let mut got = Vec::new();
    reader.read_to_end(&mut got).expect("all");
    assert_eq!(got.len(), sent);
    assert!(
        got.iter()
            .enumerate()
            .all(|(at, byte)| *byte == chunk[at % chunk.len()])
    );
}

#[test]
fn what_waits_to_be_sent_outlives_its_socket_and_host() {
    let [server, client] = hosts(1);
    let listener = TcpListener::bind(&server, "192.0.2.1:80").expect("a listener");
    let mut stream = TcpStream::connect(&client, "192.0.2.1:80").expect("a connection");
    let (mut to_client, _) = listener.accept().expect("a connection");
    let data = pattern(200_000, 1);
    stream.write_all(&data).expect("written");
    drop(stream);
    let ender = std::thread::spawn(move || drop(client));
    let mut got = Vec::new();
    to_client.read_to_end(&mut got).expect("all");
    assert!(got == data);
    drop(to_client);
    ender.join().expect("the end of the host");
}

#[test]
fn datagrams_come_whole_and_from_whom_they_say() {
    let hosts = hosts(2);
    let server = UdpSocket::bind(&hosts[0], "192.0.2.1:53").expect("a socket");
    let client = UdpSocket::bind(&hosts[1], "192.0.2.2:0").expect("a socket");
    for socket in [&server, &client] {
        let patience = Some(Duration::from_secs(30));
        socket.set_read_timeout(patience).expect("a timeout");
    }
    let from = client.local_addr().expect("an address");
    assert_ne!(from.port(), 0);
    for len in [0, 1, 100, 1472, 1473, 20_000, 65_000] {
        let data = pattern(len, len as u64);
        assert_eq!(client.send_to(&data, "192.0.2.1:53").expect("sent"), len);
        let mut buffer = vec![0; 70_000];
        let got = server.recv_from(&mut buffer);
        let (n, peer) = got.unwrap_or_else(|error| panic!("{len} bytes: {error}"));
        assert_eq!((n, peer), (len, from));
        assert_eq!(&buffer[..n], data);
    }
    client.connect("192.0.2.1:53").expect("a peer");
    client.send(b"question").expect("sent");
    let mut short = [0; 4];
    let (n, peer) = server.peek_from(&mut short).expect("a datagram");
    assert_eq!((n, &short), (4, b"ques"));
    let (n, _) = server
        .recv_from(&mut short)
        .expect("the same datagram, cut");
    assert_eq!((n, &short), (4, b"ques"));
    server.send_to(b"answer", peer).expect("sent");
    let mut buffer = [0; 16];
    assert_eq!(client.recv(&mut buffer).expect("an answer"), 6);
    let error = client.send(&vec![0; 65_508]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
}

#[test]
fn groups_reach_their_members() {
    let hosts = hosts(1);
    let group: SocketAddr = "239.1.2.3:5000".parse().expect("an address");
    let member = UdpSocket::bind(&hosts[0], "0.0.0.0:5000").expect("a socket");
    let any = "0.0.0.0".parse().expect("an address");
    let ip = "239.1.2.3".parse().expect("an address");
    member.join_multicast_v4(&ip, &any).expect("joined");
    let again = member.join_multicast_v4(&ip, &any).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    let sender = UdpSocket::bind(&hosts[1], "192.0.2.2:0").expect("a socket");
    sender.send_to(b"to all", group).expect("sent");
    let mut buffer = [0; 16];
    let (n, _) = member.recv_from(&mut buffer).expect("a datagram");
    assert_eq!(&buffer[..n], b"to all");
    member.leave_multicast_v4(&ip, &any).expect("left");
}

#[test]
fn an_idle_host_sleeps() {
    let hosts = hosts(1);
    let listener = TcpListener::bind(&hosts[0], "192.0.2.1:80").expect("a listener");
    let _client = TcpStream::connect(&hosts[1], "192.0.2.1:80").expect("a connection");
    let _server = listener.accept().expect("a connection");
    let cpu = || {
        std::fs::read_dir("/proc/self/task")
            .expect("threads")
            .filter_map(|task| {
                let path = task.ok()?.path();
                let name = std::fs::read_to_string(path.join("comm")).ok()?;
                let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
                let ns: u64 = stat.split(' ').next()?.parse().ok()?;
                name.starts_with("worker-").then_some(ns)
            })
            .sum::<u64>()
    };
    // Other tests of this process have workers, too: only an upper bound over a long enough time would hold, so
    // that it is asked for several times.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let before = cpu();
        std::thread::sleep(Duration::from_millis(500));
        if cpu().saturating_sub(before) < 50_000_000 {
            return;
        }
        assert!(Instant::now() < deadline, "idle workers use the CPU");
    }
}
