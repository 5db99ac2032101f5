//! Live captures: copies that the workers make, as pcapng with the stage or the drop reason of each.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::io::pcapng::{Direction, InterfaceDescription, Packet, Section, Writer};
use ::io::{PortId, cpu};
use control::api::{ApiError, CapturePoint, CaptureRequest, ErrorCode};
use control::socket::Sink;
use graph::Expression;
use graph::capture::{Filter, Point, Record};
use wire::Instant;

use super::workers::Workers;
use super::{Dataplane, lock};

/// How often the workers' copies are collected.
const COLLECT: Duration = Duration::from_millis(10);

/// A capture that is ready to run.
#[derive(Debug)]
pub struct Capture {
    workers: Arc<Mutex<Workers>>,
    filter: Filter,
    /// Ports to keep, where the workers cannot tell by themselves; empty: all.
    ports: Vec<PortId>,
    port_names: Vec<String>,
    stages: Vec<String>,
    max_pkts: u64,
}

/// Reads a request.
pub(super) fn prepare(node: &Dataplane, request: &CaptureRequest) -> Result<Capture, ApiError> {
    let stages: Vec<String> = match node.counters.first() {
        Some(counters) => counters.nodes.iter().map(|n| n.name.clone()).collect(),
        None => Vec::new(),
    };
    let state = node.state();
    let port_names: Vec<String> = state.plan.ports.iter().map(|p| p.name.clone()).collect();
    let mut ports = Vec::new();
    for name in &request.ports {
        match port_names.iter().position(|port| port == name) {
            Some(port) => ports.push(PortId(port as u16)),
            None => return Err(not_found("port", name, &port_names)),
        }
    }
    let mut filter = Filter {
        expression: expression(&request.filter)?,
        snap_bytes: u16::try_from(request.snap_bytes).unwrap_or(0),
        ..Filter::default()
    };
    for point in &request.points {
        match point {
            CapturePoint::Rx => filter.rx = true,
            CapturePoint::Tx => filter.tx = true,
            CapturePoint::Drop => filter.drops = true,
            CapturePoint::Stages => filter.stages = u128::MAX,
            CapturePoint::Stage(name) => match stages.iter().position(|stage| stage == name) {
                Some(stage) => filter.stages |= 1 << stage,
                None => return Err(not_found("stage", name, &stages)),
            },
        }
    }
    if request.points.is_empty() {
        filter = Filter {
            expression: filter.expression,
            snap_bytes: filter.snap_bytes,
            ..Filter::everything()
        };
    }
    if let [port] = ports[..] {
        filter.port = Some(port);
    }
    Ok(Capture {
        workers: Arc::clone(&node.workers),
        filter,
        ports,
        port_names,
        stages,
        max_pkts: request.max_pkts,
    })
}

fn expression(text: &str) -> Result<Option<Arc<Expression>>, ApiError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    match Expression::parse(text) {
        Ok(expression) => Ok(Some(Arc::new(expression))),
        Err(error) => Err(ApiError {
            code: ErrorCode::Usage,
            message: error.to_string(),
            remedy: Some(error.remedy),
        }),
    }
}

fn not_found(what: &str, name: &str, names: &[String]) -> ApiError {
    ApiError {
        code: ErrorCode::NotFound,
        message: format!("there is no {what} `{name}`"),
        remedy: Some(format!("write one of: {}", names.join(", "))),
    }
}

impl Capture {
    /// Writes pcapng to `sink` until it is closed or enough was captured. Where the workers have no record
    /// left, copies are lost (the file says how many), packets are not.
    ///
    /// # Errors
    /// The sink's.
    pub fn run(self, sink: &mut Sink) -> io::Result<()> {
        let mut session = Session::start(&self)?;
        loop {
            let goes_on = session.collect(&self);
            sink.write_all(&session.buffer.take())?;
            sink.flush()?;
            if !goes_on || sink.is_closed() {
                return Ok(());
            }
            std::thread::sleep(COLLECT);
        }
    }

    /// Captures into memory for so long: what programs that link the node use.
    ///
    /// # Errors
    /// None in practice: memory takes everything.
    pub fn run_for(self, length: Duration) -> io::Result<Vec<u8>> {
        let mut session = Session::start(&self)?;
        let end = cpu::now() + length;
        while session.collect(&self) && cpu::now() < end {
            std::thread::sleep(COLLECT);
        }
        Ok(session.buffer.take())
    }
}

fn section() -> Section<'static> {
    Section {
        application: Some(concat!("tidegate ", env!("CARGO_PKG_VERSION"))),
        ..Section::default()
    }
}

/// Where the writer's bytes are until the sink takes them.
#[derive(Clone, Debug, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    /// Takes what was written so far.
    fn take(&self) -> Vec<u8> {
        core::mem::take(&mut *lock(&self.0))
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A capture that runs; ends, and the workers' copying with it, when it is dropped.
struct Session {
    workers: Arc<Mutex<Workers>>,
    buffer: Buffer,
    writer: Writer<Buffer>,
    /// Interface number by what it stands for.
    interfaces: HashMap<String, u32>,
    /// Wall-clock time at the zero of the workers' clock, nanoseconds.
    epoch_ns: u64,
    pkts: u64,
    lost: Vec<u64>,
    comment: String,
}

impl Session {
    fn start(capture: &Capture) -> io::Result<Self> {
        let buffer = Buffer::default();
        let writer = Writer::new(buffer.clone(), &section())?;
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut workers = lock(&capture.workers);
        let mut lost = Vec::new();
        for handle in &mut workers.handles {
            // What an earlier capture left is not ours.
            handle.captured().drain(|_| {});
            lost.push(handle.captured().lost());
            handle
                .capture(Some(capture.filter.clone()))
                .map_err(io::Error::other)?;
        }
        drop(workers);
        Ok(Self {
            workers: Arc::clone(&capture.workers),
            buffer,
            writer,
            interfaces: HashMap::new(),
            epoch_ns: (wall.as_nanos() as u64).saturating_sub(cpu::now().as_ns()),
            pkts: 0,
            lost,
            comment: String::new(),
        })
    }

    /// Writes what the workers copied; tells whether more is wanted.
    fn collect(&mut self, capture: &Capture) -> bool {
        let workers = Arc::clone(&self.workers);
        let mut workers = lock(&workers);
        for (index, handle) in workers.handles.iter_mut().enumerate() {
            let lost = handle.captured().lost();
            let mut newly_lost = lost - self.lost[index];
            self.lost[index] = lost;
            handle.captured().drain(|record| {
                let wanted = capture.max_pkts == 0 || self.pkts < capture.max_pkts;
                if wanted && capture.wants(record) {
                    self.record(capture, record, core::mem::take(&mut newly_lost));
                }
            });
        }
        (capture.max_pkts == 0 || self.pkts < capture.max_pkts) && workers.are_running()
    }

    fn record(&mut self, capture: &Capture, record: &Record, lost: u64) {
        let name = |port: PortId| {
            capture
                .port_names
                .get(port.index())
                .map_or("?", |n| n.as_str())
        };
        let stage = |stage: u8| {
            capture
                .stages
                .get(usize::from(stage))
                .map_or("?", |n| n.as_str())
        };
        self.comment.clear();
        let (interface, direction) = match record.point {
            Point::Rx(port) => (name(port).to_owned(), Some(Direction::Inbound)),
            Point::Tx(port) => (name(port).to_owned(), Some(Direction::Outbound)),
            Point::Stage(at) => {
                let _ = write!(self.comment, "enters {}", stage(at));
                (format!("stage {}", stage(at)), None)
            }
            Point::Drop(at, reason) => {
                let _ = write!(
                    self.comment,
                    "dropped by {}: {} ({}, {})",
                    stage(at),
                    reason.text(),
                    reason.name(),
                    reason.source()
                );
                ("drop".to_owned(), None)
            }
        };
        let Ok(interface) = self.interface(interface) else {
            return; // memory takes everything
        };
        let mut packet = Packet::new(interface, self.wall_ns(record.at), &record.data);
        packet.original_bytes = record.frame_bytes.into();
        packet.direction = direction;
        packet.comment = (!self.comment.is_empty()).then_some(self.comment.as_str());
        packet.lost_pkts = (lost > 0).then_some(lost);
        if self.writer.write_packet(&packet).is_ok() {
            self.pkts += 1;
        }
    }

    fn wall_ns(&self, at: Instant) -> u64 {
        self.epoch_ns.saturating_add(at.as_ns())
    }

    fn interface(&mut self, name: String) -> io::Result<u32> {
        if let Some(&number) = self.interfaces.get(&name) {
            return Ok(number);
        }
        let number = self
            .writer
            .add_interface(&InterfaceDescription::ethernet(&name))?;
        self.interfaces.insert(name, number);
        Ok(number)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for handle in &mut lock(&self.workers).handles {
            // A worker that does not read its messages does not copy either.
            let _ = handle.capture(None);
        }
    }
}

impl Capture {
    fn wants(&self, record: &Record) -> bool {
        let port = match record.point {
            Point::Tx(port) => port,
            _ => record.rx_port,
        };
        self.ports.is_empty() || self.ports.contains(&port)
    }
}
