//! The sans-io host of `stack` on a queue of a port, between real kernels, whatever driver it has.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io::port::PortSpec;
use io::{Batch, Frame, HugePages, Pool, PortId, Queue};
use lab::topology::Side;
use stack::{Error, ListenerHandle, Shutdown, Stack, StackConfig, TcpHandle, TxSink};
use wire::MacAddr;

use crate::common::{Driver, line};

const PATIENCE: Duration = Duration::from_secs(30);

/// Frames of the pool that wait to be sent; the stack writes into them.
struct Sender<'a> {
    pool: &'a mut Pool,
    out: &'a mut Batch,
    reserved: Option<Frame>,
}

impl TxSink for Sender<'_> {
    fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.out.room() == 0 {
            return None;
        }
        if self.reserved.is_none() {
            self.reserved = self.pool.alloc();
        }
        let frame = self.reserved.as_mut()?;
        frame.set_len(bytes).then(|| frame.data_mut())
    }

    fn commit(&mut self) {
        if let Some(Err(frame)) = self.reserved.take().map(|frame| self.out.push(frame)) {
            self.pool.free(frame);
        }
    }
}

/// A host that sends back what it receives.
struct Echo {
    queue: Box<dyn Queue>,
    stack: Stack,
    listener: ListenerHandle,
    /// Open connections, each with what it has still to send back, and whether the peer is done.
    open: Vec<(TcpHandle, Vec<u8>, bool)>,
    out: Batch,
}

impl Echo {
    fn new(queue: Box<dyn Queue>, mac: [u8; 6], addresses: [IpAddr; 2]) -> Self {
        let config = StackConfig::new(MacAddr(mac), [3, 1, 4, 1]);
        let mut stack = Stack::new(config, io::cpu::now());
        for (address, prefix) in addresses.into_iter().zip([24, 64]) {
            assert!(stack.add_address(address, prefix));
        }
        let any = SocketAddr::new(IpAddr::from([0; 16]), 7);
        let listener = stack.tcp_listen(any, 16).expect("a listener");
        Self {
            queue,
            stack,
            listener,
            open: Vec::new(),
            out: Batch::new(),
        }
    }

    /// Receives, serves and sends; tells whether there was anything to do.
    fn turn(&mut self, pool: &mut Pool) -> bool {
        let now = io::cpu::now();
        let mut batch = Batch::new();
        let received = self.queue.rx(pool, &mut batch);
        let frames: Vec<&[u8]> = batch.iter().map(Frame::data).collect();
        self.stack.input(now, &frames);
        pool.free_batch(&mut batch);
        if self.stack.poll_timeout().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
        }
        while self.stack.poll_event().is_some() {}
        while let Ok((handle, _)) = self.stack.tcp_accept(self.listener) {
            self.open.push((handle, Vec::new(), false));
        }
        let stack = &mut self.stack;
        self.open.retain_mut(|connection| echo(stack, connection));
        let mut sender = Sender {
            pool,
            out: &mut self.out,
            reserved: None,
        };
        self.stack.poll_transmit(now, &mut sender);
        let unused = sender.reserved.take();
        unused.into_iter().for_each(|frame| pool.free(frame));
        let sent = self.queue.tx(pool, &mut self.out);
        received + sent > 0
    }
}

/// Moves bytes of a connection; tells whether it goes on.
fn echo(stack: &mut Stack, connection: &mut (TcpHandle, Vec<u8>, bool)) -> bool {
    let now = io::cpu::now();
    let (handle, waiting, done) = connection;
    let mut bytes = [0; 16 << 10];
    if !*done && waiting.len() < bytes.len() {
        match stack.tcp_recv(now, *handle, &mut bytes) {
            Ok(0) => *done = true,
            Ok(read) => waiting.extend_from_slice(&bytes[..read]),
            Err(Error::WouldBlock) => {}
            Err(_) => return false,
        }
    }
    match stack.tcp_send(now, *handle, waiting) {
        Ok(sent) => drop(waiting.drain(..sent)),
        Err(Error::WouldBlock) => {}
        Err(_) => return false,
    }
    if *done && waiting.is_empty() {
        let ended = stack.tcp_shutdown(now, *handle, Shutdown::Write);
        let closed = stack.tcp_close(now, *handle);
        assert_eq!((ended, closed), (Ok(()), Ok(())));
        return false;
    }
    true
}

/// A host on each side's wire: the kernel there pings it, and gets back every byte that it sends by TCP over
/// IPv4 and IPv6.
pub(crate) fn hosts(test: &str, prefix: &str, mut driver: Driver) {
    if !lab::need::root(test) || !lab::need::program(test, "ping") {
        return;
    }
    let line = line(prefix);
    let mut pool = Pool::new(8192, 4096, HugePages::Auto).expect("a pool");
    let mut hosts: Vec<Echo> = [&line.left, &line.right]
        .into_iter()
        .enumerate()
        .map(|(id, side)| {
            let spec = PortSpec::new(PortId(id as u16), "host", driver.spec(side));
            let region = pool.region();
            let open = || io::port::open(&spec, region, 1).expect("the port opens");
            let mut port = line.node.run(open).expect("the namespace can be entered");
            Echo::new(port.queues.remove(0), port.mac, addresses(side))
        })
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Ended also by a failure below.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stops = Stop(&stop);
        let (line, stop) = (&line, &stop);
        let served = scope.spawn(move || {
            line.node.enter().expect("the namespace can be entered");
            let end = Instant::now() + 4 * PATIENCE;
            while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                let worked = hosts
                    .iter_mut()
                    .filter_map(|host| host.turn(&mut pool).then_some(()));
                if worked.count() == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            for host in &mut hosts {
                pool.free_batch(&mut host.out);
                host.queue.close(&mut pool);
            }
            (pool.available(), pool.capacity())
        });
        driver.connect_to(line);
        for side in [&line.left, &line.right] {
            for address in addresses(side) {
                talks(side, address);
            }
        }
        drop(stops);
        let (home, all) = served.join().expect("the hosts end");
        assert_eq!(home, all, "frames are conserved");
    });
}

/// The host's addresses on a side: what the node's would be.
fn addresses(side: &Side) -> [IpAddr; 2] {
    let v6 = std::net::Ipv6Addr::new(0xfd00 | u16::from(side.net), 0, 0, 0, 0, 0, 0, 1);
    [side.node_address(), v6.into()]
}

fn talks(side: &Side, address: IpAddr) {
    let ping = || {
        let mut ping = side.namespace.command("ping");
        let ping = ping
            .args(["-c", "1", "-W", "1", &address.to_string()])
            .output();
        ping.is_ok_and(|output| output.status.success())
    };
    let end = Instant::now() + PATIENCE;
    while !ping() {
        assert!(Instant::now() < end, "{address} answers no ping");
    }
    let to = SocketAddr::new(address, 7);
    let connect = || TcpStream::connect_timeout(&to, PATIENCE).expect("it accepts");
    let mut stream = side
        .namespace
        .run(connect)
        .expect("the namespace can be entered");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    let data: Vec<u8> = (0..1_000_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().expect("a second handle");
        let data = &data;
        scope.spawn(move || {
            writer.write_all(data).expect("the data is taken");
            writer
                .shutdown(std::net::Shutdown::Write)
                .expect("the end is sent");
        });
        stream
            .read_to_end(&mut back)
            .expect("everything comes back");
    });
    assert!(
        back == data,
        "{address} sends back what it gets: {} of {} bytes",
        back.len(),
        data.len()
    );
}
