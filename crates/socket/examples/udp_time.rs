//! Answers each datagram with the seconds since 1970 and what it said.
//!
//! `cargo run -p tidegate-socket --example udp_time -- veth1 192.0.2.1/24`

use std::time::SystemTime;

use socket::{Host, UdpSocket};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: udp_time INTERFACE ADDRESS/PREFIX";
    let interface = arguments.next().ok_or(usage)?;
    let address = arguments.next().ok_or(usage)?;
    let host = Host::on_interface(&interface).address(&address).start()?;
    let socket = UdpSocket::bind(&host, "0.0.0.0:37")?;
    println!("listening on port 37 of {address}");
    let mut bytes = [0; 2048];
    loop {
        let (n, peer) = socket.recv_from(&mut bytes)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let said = String::from_utf8_lossy(&bytes[..n]);
        socket.send_to(format!("{} {said}", now.as_secs()).as_bytes(), peer)?;
    }
}
