//! Echoes what TCP clients send, a thread a connection.
//!
//! `cargo run -p tidegate-socket --example echo -- veth1 192.0.2.1/24`

use std::io::{Read, Write};

use socket::{Host, TcpListener, TcpStream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: echo INTERFACE ADDRESS/PREFIX";
    let interface = arguments.next().ok_or(usage)?;
    let address = arguments.next().ok_or(usage)?;
    let host = Host::on_interface(&interface).address(&address).start()?;
    let listener = TcpListener::bind(&host, "0.0.0.0:7")?;
    println!("listening on port 7 of {address}");
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            if let Err(error) = echo(stream) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 16_384];
    loop {
        let n = stream.read(&mut bytes)?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&bytes[..n])?;
    }
}
