//! The redirect program that the ports of a node share.
//!
//! Each change of the set of XDP programs that a kernel runs costs it an RCU grace period, some 10 ms
//! (the BPF dispatcher, x86-64): at the start of a node, and, what hurts more, at its end, when nobody
//! can hurry. Ports that want the same packets therefore attach one program, and only the first one in
//! and the last one out wait. The map of sockets has a row for each port, found by the interface's
//! index, so that the program looks nothing up.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::socket::Socket;
use crate::bpf::{self, BpfError, Filter, Map, MapKind, Program, Rows};

/// Rows of a shared map, and sockets in each.
const ROWS: Rows = Rows {
    row_bits: 6,
    queue_bits: 6,
};

/// A loaded program with its map of sockets.
#[derive(Debug)]
struct Redirect {
    filter: Filter,
    rows: Rows,
    program: Program,
    sockets: Map,
    /// One bit a row that a port has.
    taken: Mutex<u64>,
}

/// The programs of the ports over one region.
#[derive(Debug, Default)]
pub(super) struct Redirects(Mutex<Vec<Weak<Redirect>>>);

impl Redirect {
    fn load(filter: &Filter, rows: Rows) -> Result<Self, BpfError> {
        let sockets = Map::create(MapKind::XskMap, "tg_sockets", 4, rows.entries())?;
        let insns = bpf::redirect_program(sockets.raw_fd(), filter, rows).map_err(|source| {
            BpfError::Assemble {
                name: "tg_redirect",
                source,
            }
        })?;
        Ok(Self {
            filter: filter.clone(),
            rows,
            program: Program::load_xdp("tg_redirect", &insns)?,
            sockets,
            taken: Mutex::new(0),
        })
    }

    /// Takes the interface's row; `false` if another port has it.
    fn take(&self, ifindex: u32) -> bool {
        let bit = 1 << self.rows.row(ifindex);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = *taken & bit == 0;
        *taken |= bit;
        free
    }
}

impl Redirects {
    /// Finds a program for these packets with room for the interface, or loads one.
    pub(super) fn row(&self, ifindex: u32, queues: u32, filter: &Filter) -> Result<Row, BpfError> {
        let rows = if queues <= ROWS.queues() {
            ROWS
        } else {
            // One row of as many as there are.
            Rows {
                row_bits: 0,
                queue_bits: queues.next_power_of_two().ilog2(),
            }
        };
        let mut redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        redirects.retain(|redirect| redirect.strong_count() > 0);
        let known = redirects.iter().filter_map(Weak::upgrade).find(|redirect| {
            redirect.filter == *filter && redirect.rows == rows && redirect.take(ifindex)
        });
        let redirect = match known {
            Some(redirect) => redirect,
            None => {
                let redirect = Arc::new(Redirect::load(filter, rows)?);
                redirect.take(ifindex);
                redirects.push(Arc::downgrade(&redirect));
                redirect
            }
        };
        Ok(Row { redirect, ifindex })
    }
}

/// A port's row in a redirect program.
#[derive(Debug)]
pub(super) struct Row {
    redirect: Arc<Redirect>,
    ifindex: u32,
}

impl Row {
    /// Returns the program, to be attached.
    pub(super) fn program(&self) -> &Program {
        &self.redirect.program
    }

    /// Sends the packets of a queue to a socket.
    pub(super) fn insert(&self, queue: u32, socket: &Socket) -> Result<(), BpfError> {
        let key = self.redirect.rows.key(self.ifindex, queue);
        let fd = socket.as_fd().as_raw_fd() as u32;
        self.redirect.sockets.set_u32(key, fd)
    }

    /// Sends the packets of a queue to the kernel's stack again.
    pub(super) fn remove(&self, queue: u32) {
        let key = self.redirect.rows.key(self.ifindex, queue);
        // It may be gone: the kernel removes a closed socket by itself.
        let _ = self.redirect.sockets.remove(key);
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let bit = 1 << self.redirect.rows.row(self.ifindex);
        let taken = self.redirect.taken.lock();
        *taken.unwrap_or_else(PoisonError::into_inner) &= !bit;
    }
}
