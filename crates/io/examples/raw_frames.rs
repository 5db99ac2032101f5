//! Sends one raw frame on an interface and shows what it receives: `raw_frames lo`.

use std::time::Duration;

use io::raw::{RawError, RawPort};

fn main() -> Result<(), RawError> {
    let interface = std::env::args().nth(1).unwrap_or_else(|| "lo".into());
    println!("{} frames", hello(&interface)?);
    Ok(())
}

// README: from here
pub(crate) fn hello(interface: &str) -> Result<usize, RawError> {
    let mut port = RawPort::open(interface)?;
    port.send(b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5 hello, everybody on this link")?;
    let mut frames = 0;
    while let Some(frame) = port.receive(Duration::from_millis(200)) {
        println!("{} bytes, EtherType {:02x?}", frame.len(), &frame[12..14]);
        frames += 1;
    }
    Ok(frames)
}
