//! Relays TCP: what clients send to a port goes on to a server, and back. Both connections of a client are the host's own.
//!
//! `cargo run -p tidegate-socket --example relay -- veth1 192.0.2.1/24 5201 192.0.2.2:5201`

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};

use socket::{Host, TcpListener, TcpStream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, address, port, server] = arguments.as_slice() else {
        return Err("usage: relay INTERFACE ADDRESS/PREFIX PORT SERVER:PORT".into());
    };
    let (port, server): (u16, SocketAddr) = (port.parse()?, server.parse()?);
    let host = Host::on_interface(interface).address(address).start()?;
    let listener = TcpListener::bind(&host, (Ipv4Addr::UNSPECIFIED, port))?;
    println!("port {port} of {address} leads to {server}");
    for client in listener.incoming() {
        let (client, host) = (client?, host.clone());
        std::thread::spawn(move || {
            if let Err(error) = relay(client, &host, server) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

fn relay(client: TcpStream, host: &Host, server: SocketAddr) -> io::Result<()> {
    let upstream = TcpStream::connect(host, server)?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (from, to) = (client.try_clone()?, upstream.try_clone()?);
    let back = std::thread::spawn(move || pass(upstream, client));
    let there = pass(from, to);
    let back = back.join().unwrap_or(Ok(()));
    there.and(back)
}

/// Copies to the end, and passes the end on; a failure closes both connections.
fn pass(mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let mut bytes = vec![0; 65_536];
    loop {
        let moved = from
            .read(&mut bytes)
            .and_then(|n| to.write_all(&bytes[..n]).map(|()| n));
        match moved {
            Ok(0) => return to.shutdown(Shutdown::Write),
            Ok(_) => {}
            Err(error) => {
                // The other direction may have closed them already.
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return Err(error);
            }
        }
    }
}
