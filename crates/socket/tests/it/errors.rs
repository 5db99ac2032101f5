//! Bad use: the kinds of errors, beside those of std's sockets in the same case.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use socket::{Host, TcpListener, TcpStream, UdpSocket};

use crate::memory::hosts;

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

#[test]
fn a_port_that_is_taken() {
    let [host, _other] = hosts(2);
    let _first = TcpListener::bind(&host, "192.0.2.1:80").expect("a listener");
    assert_eq!(
        kind(TcpListener::bind(&host, "192.0.2.1:80")),
        ErrorKind::AddrInUse
    );
    let _udp = UdpSocket::bind(&host, "0.0.0.0:53").expect("a socket");
    assert_eq!(
        kind(UdpSocket::bind(&host, "0.0.0.0:53")),
        ErrorKind::AddrInUse
    );
    // As std.
    let theirs = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = theirs.local_addr().expect("an address");
    assert_eq!(
        kind(std::net::TcpListener::bind(address)),
        ErrorKind::AddrInUse
    );
}

#[test]
fn an_address_of_somebody_else() {
    let [host, _other] = hosts(1);
    let expected = kind(std::net::TcpListener::bind("192.0.2.99:80"));
    assert_eq!(expected, ErrorKind::AddrNotAvailable);
    assert_eq!(kind(TcpListener::bind(&host, "192.0.2.99:80")), expected);
    assert_eq!(kind(UdpSocket::bind(&host, "192.0.2.99:80")), expected);
}

#[test]
fn no_route() {
    let [host, _other] = hosts(1);
    assert_eq!(
        kind(TcpStream::connect(&host, "198.51.100.1:80")),
        ErrorKind::NetworkUnreachable
    );
    let udp = UdpSocket::bind(&host, "192.0.2.1:0").expect("a socket");
    udp.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    udp.send_to(b"x", "198.51.100.1:80").expect("taken");
    // The next call brings it.
    assert_eq!(
        kind(udp.recv_from(&mut [0; 4])),
        ErrorKind::NetworkUnreachable
    );
}

#[test]
fn nobody_there() {
    let [host, _other] = hosts(1);
    // No neighbour answers for the address.
    assert_eq!(
        kind(TcpStream::connect(&host, "192.0.2.77:80")),
        ErrorKind::HostUnreachable
    );
}

#[test]
fn refused() {
    let hosts = hosts(1);
    let expected = {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = gone.local_addr().expect("an address");
        drop(gone);
        kind(std::net::TcpStream::connect(address))
    };
    assert_eq!(expected, ErrorKind::ConnectionRefused);
    assert_eq!(
        kind(TcpStream::connect(&hosts[1], "192.0.2.1:81")),
        expected
    );
    // ICMP port unreachable, to a socket that has a peer.
    let udp = UdpSocket::bind(&hosts[1], "192.0.2.2:0").expect("a socket");
    udp.connect("192.0.2.1:81").expect("a peer");
    udp.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    udp.send(b"x").expect("sent");
    assert_eq!(kind(udp.recv(&mut [0; 4])), expected);
}

/// Makes a connection.
fn pair(hosts: &[Host; 2], port: u16) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(&hosts[0], ("192.0.2.1", port)).expect("a listener");
    let client = TcpStream::connect(&hosts[1], ("192.0.2.1", port)).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    (client, server)
}

/// Writes until it fails.
fn fails(stream: &mut impl Write) -> ErrorKind {
    for _ in 0..20_000 {
        if let Err(error) = stream.write(b"more") {
            return error.kind();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("writing does not fail");
}

#[test]
fn reset_and_then_broken() {
    let hosts = hosts(1);
    let (mut client, mut server) = pair(&hosts, 80);
    client.write_all(b"never read").expect("sent");
    let mut one = [0];
    server.read_exact(&mut one).expect("a byte");
    drop(server);
    assert_eq!(kind(client.read(&mut [0; 16])), ErrorKind::ConnectionReset);
    assert_eq!(client.read(&mut [0; 16]).expect("the end"), 0);
    assert_eq!(kind(client.write(b"x")), ErrorKind::BrokenPipe);
    // std: the same.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut client = std::net::TcpStream::connect(address).expect("a connection");
    let (mut server, _) = listener.accept().expect("a connection");
    client.write_all(b"never read").expect("sent");
    server.read_exact(&mut one).expect("a byte");
    drop(server);
    assert_eq!(kind(client.read(&mut [0; 16])), ErrorKind::ConnectionReset);
    assert_eq!(client.read(&mut [0; 16]).expect("the end"), 0);
    assert_eq!(kind(client.write(b"x")), ErrorKind::BrokenPipe);
}

#[test]
fn writing_to_a_peer_that_closed() {
    let hosts = hosts(1);
    let (mut client, server) = pair(&hosts, 80);
    drop(server);
    assert_eq!(client.read(&mut [0; 16]).expect("the end"), 0);
    let ours = fails(&mut client);
    assert!(matches!(
        ours,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ));
}

#[test]
fn timeouts_and_nonblocking() {
    let hosts = hosts(1);
    let (mut client, _server) = pair(&hosts, 80);
    client
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("a timeout");
    assert_eq!(kind(client.read(&mut [0; 16])), ErrorKind::WouldBlock);
    client.set_read_timeout(None).expect("no timeout");
    client.set_nonblocking(true).expect("an option");
    assert_eq!(kind(client.read(&mut [0; 16])), ErrorKind::WouldBlock);
    assert_eq!(
        kind(client.set_read_timeout(Some(Duration::ZERO))),
        ErrorKind::InvalidInput
    );
    let listener = TcpListener::bind(&hosts[0], "192.0.2.1:81").expect("a listener");
    listener.set_nonblocking(true).expect("an option");
    assert_eq!(kind(listener.accept()), ErrorKind::WouldBlock);
}

#[test]
fn connecting_takes_no_longer_than_asked() {
    use io::{mem, port::DriverSpec};
    // Frames go out and nobody takes them.
    let (end, _nobody) = mem::link(mem::LinkSpec::default());
    let host = Host::builder(DriverSpec::Mem(end))
        .address("192.0.2.1/24")
        .start()
        .expect("a host");
    let to = "192.0.2.9:80".parse().expect("an address");
    let error = kind(TcpStream::connect_timeout(
        &host,
        &to,
        Duration::from_millis(100),
    ));
    assert_eq!(error, ErrorKind::TimedOut);
}

#[test]
fn no_socket_left() {
    use io::{mem, port::DriverSpec};
    let (end, _other) = mem::link(mem::LinkSpec::default());
    let host = Host::builder(DriverSpec::Mem(end))
        .sockets(2)
        .address("192.0.2.1/24")
        .start()
        .expect("a host");
    let _one = UdpSocket::bind(&host, "192.0.2.1:1").expect("a socket");
    let _two = UdpSocket::bind(&host, "192.0.2.1:2").expect("a socket");
    assert_eq!(
        kind(UdpSocket::bind(&host, "192.0.2.1:3")),
        ErrorKind::QuotaExceeded
    );
}
