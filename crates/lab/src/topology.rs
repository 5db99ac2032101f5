//! Ready-made namespaces: a line of three, as in the demo and in most tests.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::links::VethEnd;
use crate::netns::{Namespace, NetnsError};

/// One side of a [`Line`]: a namespace whose device is wired to one port of the node.
#[derive(Debug)]
pub struct Side {
    /// The namespace at the end of the line.
    pub namespace: Namespace,
    /// The device in it.
    pub device: String,
    /// The device's Ethernet address.
    pub mac: [u8; 6],
    /// The node's device at the other end of the wire.
    pub node_device: String,
    /// The Ethernet address of the node's device.
    pub node_mac: [u8; 6],
    /// The side's IPv4 network is `10.<net>.0.0/24`; the side has `.2`, the node `.1`.
    pub net: u8,
}

impl Side {
    /// Returns the address of the side's device.
    pub fn address(&self) -> IpAddr {
        Ipv4Addr::new(10, self.net, 0, 2).into()
    }

    /// Returns the address that the node has (or is to have) on this side.
    pub fn node_address(&self) -> IpAddr {
        Ipv4Addr::new(10, self.net, 0, 1).into()
    }

    /// Returns the network of this side; its prefix length is 24.
    pub fn network(&self) -> IpAddr {
        Ipv4Addr::new(10, self.net, 0, 0).into()
    }
}

/// How to build a [`Line`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineOptions {
    /// MTU of all four devices, bytes.
    pub mtu: u32,
    /// Receive and transmit queues of all four devices.
    pub queues: u32,
    /// Give the sides addresses and routes to each other by the node.
    pub addresses: bool,
}

impl Default for LineOptions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            queues: 1,
            addresses: true,
        }
    }
}

/// Three namespaces in a line: left, node, right; two veth pairs.
///
/// The node's devices are up and have no addresses: that is the business of what runs there. Offloads
/// that leave checksums unfinished are off on the sides. Nothing sends IPv6 of its own accord on the
/// node's devices.
#[derive(Debug)]
pub struct Line {
    /// Network 10.1.0.0/24.
    pub left: Side,
    /// What is between.
    pub node: Namespace,
    /// Network 10.2.0.0/24.
    pub right: Side,
}

impl Line {
    /// Builds the line. `prefix` starts the names of the devices; at most 10 characters.
    ///
    /// # Errors
    /// The caller may not make namespaces, or the kernel refuses a part.
    pub fn new(prefix: &str, options: LineOptions) -> Result<Self, NetnsError> {
        let node = Namespace::new(&format!("{prefix}-node"))?;
        node.disable_ipv6()?;
        let left = add_side(prefix, 1, &node, options)?;
        let right = add_side(prefix, 2, &node, options)?;
        if options.addresses {
            let route = |side: &Side, other: &Side| {
                let mut links = side.namespace.links()?;
                links.add_address(&side.device, side.address(), 24)?;
                links.add_route(other.network(), 24, side.node_address())
            };
            route(&left, &right)?;
            route(&right, &left)?;
        }
        Ok(Self { left, node, right })
    }
}

fn add_side(
    prefix: &str,
    net: u8,
    node: &Namespace,
    options: LineOptions,
) -> Result<Side, NetnsError> {
    let namespace = Namespace::new(&format!("{prefix}-{net}"))?;
    if !options.addresses {
        namespace.disable_ipv6()?;
    }
    let side = Side {
        namespace,
        device: format!("{prefix}{net}"),
        mac: [0x02, 0, 0, 0, net, 2],
        node_device: format!("{prefix}{net}n"),
        node_mac: [0x02, 0, 0, 0, net, 1],
        net,
    };
    let mut links = side.namespace.links()?;
    links.add_veth(
        &VethEnd::new(&side.device, &side.namespace)
            .mac(side.mac)
            .mtu(options.mtu)
            .queues(options.queues),
        &VethEnd::new(&side.node_device, node)
            .mac(side.node_mac)
            .mtu(options.mtu)
            .queues(options.queues),
    )?;
    side.namespace.disable_send_offloads(&side.device)?;
    links.set_up(&side.device)?;
    let wait = Duration::from_secs(2);
    node.links()?.set_up_and_wait(&side.node_device, wait)?;
    links.set_up_and_wait(&side.device, wait)?;
    Ok(side)
}
