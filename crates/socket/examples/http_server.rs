//! An HTTP server of axum and hyper on a host of its own.
//!
//! `cargo run -p tidegate-socket --example http_server -- veth1 192.0.2.1/24`

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path};
use axum::routing::{get, put};
use socket::Host;
use socket::tokio::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: http_server INTERFACE ADDRESS/PREFIX";
    let interface = arguments.next().ok_or(usage)?;
    let address = arguments.next().ok_or(usage)?;
    let host = Host::on_interface(&interface).address(&address).start()?;
    let app = Router::new()
        .route("/", get(async || "hello from user space\n"))
        .route("/bytes/{count}", get(bytes))
        .route("/upload", put(upload))
        .layer(DefaultBodyLimit::disable());
    let listener = TcpListener::bind(&host, "0.0.0.0:80")?;
    println!("listening on port 80 of {address}");
    axum::serve(listener, app).await?;
    Ok(())
}

/// Serves so many bytes; each is the low byte of its place times seven.
async fn bytes(Path(count): Path<usize>) -> Vec<u8> {
    (0..count).map(|at| (at * 7) as u8).collect()
}

/// Tells how many bytes came, and their sum.
async fn upload(body: Bytes) -> String {
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    format!("{} {sum}\n", body.len())
}
