//! Downloads from an HTTP server into a file.
//!
//! `cargo run -p tidegate-socket --example download -- veth1 192.0.2.1/24 192.0.2.2:8000 /file out`

use std::fs::File;
use std::io::{BufRead, BufReader, Write};

use socket::{Host, TcpStream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, address, server, path, file] = arguments.as_slice() else {
        return Err("usage: download INTERFACE ADDRESS/PREFIX SERVER:PORT PATH FILE".into());
    };
    let host = Host::on_interface(interface).address(address).start()?;
    let mut stream = TcpStream::connect(&host, server.as_str())?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {server}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = BufReader::with_capacity(1 << 17, stream);
    let mut line = String::new();
    answer.read_line(&mut line)?;
    if line.split(' ').nth(1) != Some("200") {
        return Err(format!("the server says: {}", line.trim_end()).into());
    }
    while line.trim_end() != "" {
        line.clear();
        answer.read_line(&mut line)?;
    }
    let bytes = std::io::copy(&mut answer, &mut File::create(file)?)?;
    println!("{bytes} bytes");
    Ok(())
}
