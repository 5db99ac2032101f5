//! Network devices, addresses, routes and neighbours of one network namespace, by netlink.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::netlink::{
    self, CREATE, DUMP, REPLACE, Request, Socket, attribute, number, u16_at, u32_at,
};
use crate::netns::{Namespace, NetnsError};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const IFINFO_BYTES: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;

/// A device as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The device's index in its namespace.
    pub index: u32,
    /// The device's name.
    pub name: String,
    /// The device's Ethernet address; zero for a device without one.
    pub mac: [u8; 6],
    /// Largest packet, bytes without the Ethernet header.
    pub mtu: u32,
    /// Switched on by the administrator.
    pub up: bool,
    /// The other end is there and up too.
    pub carrier: bool,
    /// Number of receive queues.
    pub rx_queues: u32,
    /// Number of transmit queues.
    pub tx_queues: u32,
    /// Counters of the device.
    pub counters: LinkCounters,
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets received.
    pub rx_pkts: u64,
    /// Packets sent.
    pub tx_pkts: u64,
    /// Received packets that the device or its ring dropped.
    pub rx_dropped_pkts: u64,
    /// Packets to send that the device dropped.
    pub tx_dropped_pkts: u64,
}

/// One end of a veth pair, for [`Links::add_veth`].
#[derive(Clone, Debug)]
pub struct VethEnd<'a> {
    name: String,
    namespace: &'a Namespace,
    mac: Option<[u8; 6]>,
    mtu: u32,
    queues: u32,
}

impl<'a> VethEnd<'a> {
    /// Describes an end called `name` in `namespace`: MTU 1500, one queue each way, a MAC address of
    /// the kernel's choice.
    pub fn new(name: &str, namespace: &'a Namespace) -> Self {
        Self {
            name: name.to_owned(),
            namespace,
            mac: None,
            mtu: 1500,
            queues: 1,
        }
    }

    /// Sets the Ethernet address.
    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac);
        self
    }

    /// Sets the MTU, bytes.
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Sets the number of receive and of transmit queues.
    pub fn queues(mut self, queues: u32) -> Self {
        self.queues = queues;
        self
    }

    fn write(&self, request: Request) -> Request {
        let request = request
            .string(IFLA_IFNAME, &self.name)
            .number(IFLA_MTU, self.mtu)
            .number(IFLA_NUM_TX_QUEUES, self.queues)
            .number(IFLA_NUM_RX_QUEUES, self.queues)
            .number(IFLA_NET_NS_FD, self.namespace.fd().as_raw_fd() as u32);
        match &self.mac {
            Some(mac) => request.attribute(IFLA_ADDRESS, mac),
            None => request,
        }
    }
}

/// Configures the devices of one network namespace; usable from any thread.
#[derive(Debug)]
pub struct Links {
    socket: Socket,
}

impl Links {
    /// Opens the calling thread's network namespace for configuration ([`Namespace::links`] opens
    /// that of any namespace).
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub fn open() -> Result<Self, NetnsError> {
        let socket = Socket::open(libc::NETLINK_ROUTE)
            .map_err(|source| NetnsError::new("open a netlink socket", "", source))?;
        Ok(Self { socket })
    }

    /// Makes a veth pair, each end in its own namespace, both down.
    ///
    /// # Errors
    /// The kernel refuses, e.g. since a name is taken.
    pub fn add_veth(&mut self, end: &VethEnd<'_>, peer: &VethEnd<'_>) -> Result<(), NetnsError> {
        let request = Request::new(RTM_NEWLINK, CREATE, &[0; IFINFO_BYTES]);
        let request = end.write(request).nest(IFLA_LINKINFO, |r| {
            r.string(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |r| {
                r.nest(VETH_INFO_PEER, |r| peer.write(r.raw(&[0; IFINFO_BYTES])))
            })
        });
        self.execute("make the veth pair", &end.name, request)
    }

    /// Makes a bridge without spanning tree, down.
    ///
    /// # Errors
    /// The kernel refuses, e.g. since the name is taken.
    pub fn add_bridge(&mut self, name: &str) -> Result<(), NetnsError> {
        let request = Request::new(RTM_NEWLINK, CREATE, &[0; IFINFO_BYTES])
            .string(IFLA_IFNAME, name)
            .nest(IFLA_LINKINFO, |r| r.string(IFLA_INFO_KIND, "bridge"));
        self.execute("make the bridge", name, request)
    }

    /// Makes `name` a port of the bridge `bridge`.
    ///
    /// # Errors
    /// One of the devices does not exist, or the kernel refuses.
    pub fn set_bridge(&mut self, name: &str, bridge: &str) -> Result<(), NetnsError> {
        let bridge = self.get(bridge)?.index;
        self.change("attach to the bridge", name, 0, |r| {
            r.number(IFLA_MASTER, bridge)
        })
    }

    /// Switches a device on.
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn set_up(&mut self, name: &str) -> Result<(), NetnsError> {
        self.change("switch on", name, IFF_UP, |r| r)
    }

    /// Switches a device off; the other end of a veth pair loses its carrier.
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn set_down(&mut self, name: &str) -> Result<(), NetnsError> {
        let mut fixed = [0; IFINFO_BYTES];
        fixed[12..16].copy_from_slice(&IFF_UP.to_ne_bytes()); // change it, to 0
        let request = Request::new(RTM_SETLINK, 0, &fixed).string(IFLA_IFNAME, name);
        self.execute("switch off", name, request)
    }

    /// Switches a device on and waits until its other end is up too, for at most `timeout`.
    ///
    /// # Errors
    /// The device does not exist, the kernel refuses, or no carrier in time.
    pub fn set_up_and_wait(&mut self, name: &str, timeout: Duration) -> Result<(), NetnsError> {
        self.set_up(name)?;
        let end = Instant::now() + timeout;
        while !self.get(name)?.carrier {
            if Instant::now() > end {
                return Err(NetnsError::new(
                    "see a carrier on",
                    name,
                    std::io::ErrorKind::TimedOut.into(),
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Sets the MTU, bytes.
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), NetnsError> {
        self.change("set the MTU of", name, 0, |r| r.number(IFLA_MTU, mtu))
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<(), NetnsError> {
        self.change("set the MAC address of", name, 0, |r| {
            r.attribute(IFLA_ADDRESS, &mac)
        })
    }

    /// Moves a device to another namespace, where it is down and without addresses.
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn move_to(&mut self, name: &str, namespace: &Namespace) -> Result<(), NetnsError> {
        let fd = namespace.fd().as_raw_fd() as u32;
        self.change("move", name, 0, |r| r.number(IFLA_NET_NS_FD, fd))
    }

    /// Removes a device (and its peer, if it is one end of a veth pair).
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn remove(&mut self, name: &str) -> Result<(), NetnsError> {
        let request = Request::new(RTM_DELLINK, 0, &[0; IFINFO_BYTES]).string(IFLA_IFNAME, name);
        self.execute("remove", name, request)
    }

    /// Gives a device an address, e.g. `10.0.0.1` and 24; an IPv6 address is usable at once (no
    /// duplicate address detection).
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn add_address(
        &mut self,
        name: &str,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), NetnsError> {
        const IFA_ADDRESS: u16 = 1;
        const IFA_LOCAL: u16 = 2;
        const IFA_F_NODAD: u8 = 2;
        let index = self.get(name)?.index;
        let (family, bytes) = family_and_bytes(address);
        let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        let mut fixed = vec![family, prefix_len, flags, 0];
        fixed.extend_from_slice(&index.to_ne_bytes());
        let request = Request::new(RTM_NEWADDR, REPLACE, &fixed)
            .attribute(IFA_LOCAL, &bytes)
            .attribute(IFA_ADDRESS, &bytes);
        self.execute("give an address to", name, request)
    }

    /// Adds a route to `network`/`prefix_len` by the gateway `via`.
    ///
    /// # Errors
    /// The gateway is not reachable, or the kernel refuses.
    pub fn add_route(
        &mut self,
        network: IpAddr,
        prefix_len: u8,
        via: IpAddr,
    ) -> Result<(), NetnsError> {
        const RTA_DST: u16 = 1;
        const RTA_GATEWAY: u16 = 5;
        const TABLE_MAIN: u8 = 254;
        const PROTOCOL_STATIC: u8 = 4;
        const TYPE_UNICAST: u8 = 1;
        let (family, destination) = family_and_bytes(network);
        let (_, gateway) = family_and_bytes(via);
        let fixed = [
            family,
            prefix_len,
            0,
            0,
            TABLE_MAIN,
            PROTOCOL_STATIC,
            0,
            TYPE_UNICAST,
            0,
            0,
            0,
            0,
        ];
        let mut request = Request::new(RTM_NEWROUTE, REPLACE, &fixed);
        if prefix_len > 0 {
            request = request.attribute(RTA_DST, &destination);
        }
        let request = request.attribute(RTA_GATEWAY, &gateway);
        self.execute("add the route to", &network.to_string(), request)
    }

    /// Adds a permanent neighbour (an ARP or NDP entry).
    ///
    /// # Errors
    /// The device does not exist, or the kernel refuses.
    pub fn add_neighbour(
        &mut self,
        name: &str,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), NetnsError> {
        const NDA_DST: u16 = 1;
        const NDA_LLADDR: u16 = 2;
        const NUD_PERMANENT: u16 = 0x80;
        let index = self.get(name)?.index;
        let (family, bytes) = family_and_bytes(address);
        let mut fixed = vec![family, 0, 0, 0];
        fixed.extend_from_slice(&index.to_ne_bytes());
        fixed.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
        fixed.extend_from_slice(&[0, 0]);
        let request = Request::new(RTM_NEWNEIGH, REPLACE, &fixed)
            .attribute(NDA_DST, &bytes)
            .attribute(NDA_LLADDR, &mac);
        self.execute("add a neighbour on", name, request)
    }

    /// Returns what the kernel knows about a device.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn get(&mut self, name: &str) -> Result<Link, NetnsError> {
        let request = Request::new(RTM_GETLINK, 0, &[0; IFINFO_BYTES]).string(IFLA_IFNAME, name);
        self.socket
            .query(request)
            .map_err(|source| NetnsError::new("find the device", name, source))?
            .first()
            .map(|answer| parse_link(answer))
            .ok_or_else(|| {
                NetnsError::new("find the device", name, std::io::ErrorKind::NotFound.into())
            })
    }

    /// Returns all devices.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn list(&mut self) -> Result<Vec<Link>, NetnsError> {
        let request = Request::new(RTM_GETLINK, DUMP, &[0; IFINFO_BYTES]);
        let answers = self
            .socket
            .query(request)
            .map_err(|source| NetnsError::new("list the devices", "", source))?;
        Ok(answers.iter().map(|answer| parse_link(answer)).collect())
    }

    fn change(
        &mut self,
        what: &'static str,
        name: &str,
        flags: u32,
        fill: impl FnOnce(Request) -> Request,
    ) -> Result<(), NetnsError> {
        let mut fixed = [0; IFINFO_BYTES];
        fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
        fixed[12..16].copy_from_slice(&flags.to_ne_bytes()); // change only these
        let request = Request::new(RTM_SETLINK, 0, &fixed).string(IFLA_IFNAME, name);
        self.execute(what, name, fill(request))
    }

    fn execute(
        &mut self,
        what: &'static str,
        name: &str,
        request: Request,
    ) -> Result<(), NetnsError> {
        self.socket
            .execute(request)
            .map_err(|source| NetnsError::new(what, name, source))
    }
}

fn family_and_bytes(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

fn parse_link(answer: &[u8]) -> Link {
    let flags = u32_at(answer, 8);
    let body = answer.get(IFINFO_BYTES..).unwrap_or(&[]);
    let name = attribute(body, IFLA_IFNAME).unwrap_or(&[]);
    let mac = attribute(body, IFLA_ADDRESS).unwrap_or(&[]);
    let counter = |index: usize| {
        attribute(body, IFLA_STATS64)
            .and_then(|stats| stats.get(index * 8..index * 8 + 8)?.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    };
    Link {
        index: u32_at(answer, 4),
        name: String::from_utf8_lossy(name)
            .trim_end_matches('\0')
            .to_owned(),
        mac: mac.try_into().unwrap_or([0; 6]),
        mtu: number(body, IFLA_MTU).unwrap_or(0),
        up: flags & IFF_UP != 0,
        carrier: flags & IFF_LOWER_UP != 0,
        rx_queues: number(body, IFLA_NUM_RX_QUEUES).unwrap_or(1),
        tx_queues: number(body, IFLA_NUM_TX_QUEUES).unwrap_or(1),
        counters: LinkCounters {
            rx_pkts: counter(0),
            tx_pkts: counter(1),
            rx_dropped_pkts: counter(6),
            tx_dropped_pkts: counter(7),
        },
    }
}

/// Returns the kernel threads that poll a device of the calling thread's namespace (threaded NAPI).
pub(crate) fn napi_threads(ifindex: u32) -> std::io::Result<Vec<i32>> {
    const GENL_ID_CTRL: u16 = 16;
    const CTRL_CMD_GETFAMILY: u8 = 3;
    const CTRL_ATTR_FAMILY_ID: u16 = 1;
    const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    const NETDEV_CMD_NAPI_GET: u8 = 11;
    const NETDEV_A_NAPI_IFINDEX: u16 = 1;
    const NETDEV_A_NAPI_PID: u16 = 4;
    const GENL_HEADER_BYTES: usize = 4;
    let mut socket = Socket::open(libc::NETLINK_GENERIC)?;
    let request = Request::new(GENL_ID_CTRL, 0, &[CTRL_CMD_GETFAMILY, 1, 0, 0])
        .string(CTRL_ATTR_FAMILY_NAME, "netdev");
    let answers = socket.query(request)?;
    let family = answers
        .first()
        .and_then(|answer| attribute(answer.get(GENL_HEADER_BYTES..)?, CTRL_ATTR_FAMILY_ID))
        .map(|id| u16_at(id, 0))
        .ok_or(std::io::ErrorKind::Unsupported)?;
    let request = Request::new(family, DUMP, &[NETDEV_CMD_NAPI_GET, 1, 0, 0])
        .number(NETDEV_A_NAPI_IFINDEX, ifindex);
    let answers = socket.query(request)?;
    Ok(answers
        .iter()
        .filter_map(|answer| netlink::number(answer.get(GENL_HEADER_BYTES..)?, NETDEV_A_NAPI_PID))
        .filter_map(|pid| i32::try_from(pid).ok())
        .collect())
}
