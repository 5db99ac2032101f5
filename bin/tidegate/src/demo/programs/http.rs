//! A small HTTP/1.1 server and client over the kernel's TCP, with content that can be checked.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::{Line, tell};

/// The content repeats after so many bytes, a prime: a piece that is lost or given twice shows.
const PERIOD_BYTES: usize = 65_521;
/// Bytes of one download.
const DOWNLOAD_BYTES: u64 = 16 << 20;
const PROGRESS: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

fn content() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..PERIOD_BYTES)
        .map(|_| {
            // xorshift64 (Marsaglia 2003)
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        })
        .collect()
}

/// Serves until it is killed.
pub(super) fn serve(listen: SocketAddr) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    tell(Line::Ready)?;
    for stream in listener.incoming() {
        let stream = stream?;
        // a client that goes away ends its own answer only
        thread::spawn(move || answer(&stream));
    }
    Ok(())
}

fn answer(stream: &TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut stream = stream;
    let bytes = request
        .strip_prefix("GET /")
        .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    let Some(bytes) = bytes else {
        return stream.write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {bytes}\r\nConnection: close\r\n\r\n"
    )?;
    let content = content();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(PERIOD_BYTES as u64) as usize;
        stream.write_all(&content[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// Downloads again and again for `time` and reports the bytes that arrived as they were sent.
pub(super) fn download(from: SocketAddr, time: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    let content = content();
    let mut progress = Progress {
        bytes: 0,
        next: Instant::now(),
    };
    while Instant::now() < end {
        fetch(from, &content, end, &mut progress)?;
    }
    tell(Line::Downloaded {
        bytes: progress.bytes,
    })?;
    Ok(())
}

struct Progress {
    bytes: u64,
    next: Instant,
}

fn fetch(
    from: SocketAddr,
    content: &[u8],
    end: Instant,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&from, PATIENCE)
        .with_context(|| format!("cannot connect to {from}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /{DOWNLOAD_BYTES} HTTP/1.1\r\nHost: {from}\r\nConnection: close\r\n\r\n"
    )?;
    let mut reader = BufReader::new(stream);
    let mut length = None;
    let mut line = String::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let header = line.trim_end().to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = Some(value.trim().parse::<u64>()?);
        } else if header.is_empty() {
            break;
        }
    }
    ensure!(
        length == Some(DOWNLOAD_BYTES),
        "the server's answer has another length"
    );
    let mut at = 0;
    let mut left = DOWNLOAD_BYTES;
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            bail!("the connection ended {left} bytes too soon");
        }
        let mut piece = &buffer[..read];
        while !piece.is_empty() {
            let part = piece.len().min(PERIOD_BYTES - at);
            ensure!(
                piece[..part] == content[at..at + part],
                "a byte arrived changed"
            );
            at = (at + part) % PERIOD_BYTES;
            piece = &piece[part..];
        }
        left = left.saturating_sub(read as u64);
        progress.bytes += read as u64;
        let now = Instant::now();
        if now >= progress.next {
            tell(Line::Downloaded {
                bytes: progress.bytes,
            })?;
            progress.next = now + PROGRESS;
        }
        if now >= end {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_gets_what_the_server_sends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = listener.local_addr().unwrap();
        let server = thread::spawn(move || answer(&listener.accept().unwrap().0));
        let mut progress = Progress {
            bytes: 0,
            next: Instant::now() + PATIENCE,
        };
        let end = Instant::now() + PATIENCE;
        fetch(from, &content(), end, &mut progress).unwrap();
        assert_eq!(progress.bytes, DOWNLOAD_BYTES);
        server.join().unwrap().unwrap();
    }

    #[test]
    fn changed_byte_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = listener.local_addr().unwrap();
        let server = thread::spawn(move || answer(&listener.accept().unwrap().0));
        let mut progress = Progress {
            bytes: 0,
            next: Instant::now() + PATIENCE,
        };
        let mut wrong = content();
        wrong[1000] ^= 1;
        let end = Instant::now() + PATIENCE;
        let error = fetch(from, &wrong, end, &mut progress).unwrap_err();
        assert_eq!(error.to_string(), "a byte arrived changed");
        let _ = server.join().unwrap();
    }

    #[test]
    fn unknown_path_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client
            .write_all(b"GET /etc/passwd HTTP/1.1\r\n\r\n")
            .unwrap();
        answer(&listener.accept().unwrap().0).unwrap();
        let mut status = [0; 12];
        client.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 404");
    }
}
