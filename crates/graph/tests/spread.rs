//! Software RSS: who belongs together meets on one worker.

use graph::Spread;
use wire::{Addresses, FlowSecret, MacAddr, ether_type, ethernet, icmpv4, ip_protocol, ipv4, udp};

const WORKERS: u16 = 7;

/// A frame with a UDP datagram between two hosts, 28 bytes of packet.
fn datagram(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let (source, destination) = (source.into(), destination.into());
    let mut frame = vec![0; 42];
    packet(
        &mut frame,
        ipv4::Repr::new(source, destination, ip_protocol::UDP, 8),
    );
    let repr = udp::Repr {
        source_port: ports.0,
        destination_port: ports.1,
    };
    repr.emit(
        &mut frame[34..],
        &Addresses::V4 {
            source,
            destination,
        },
    )
    .unwrap();
    frame
}

/// The error that `router` sends about a datagram.
fn unreachable(about: &[u8], router: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 42];
    frame.extend(&about[14..]);
    let to = ipv4::View::new(&about[14..]).unwrap().source();
    packet(
        &mut frame,
        ipv4::Repr::new(router.into(), to, ip_protocol::ICMP, 36),
    );
    let repr = icmpv4::Repr::DestinationUnreachable { code: 1, mtu: 0 };
    repr.emit(&mut frame[34..]).unwrap();
    frame
}

fn packet(frame: &mut [u8], header: ipv4::Repr<'_>) {
    let (destination, source) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
    let ether_type = ether_type::IPV4;
    ethernet::Repr {
        destination,
        source,
        ether_type,
    }
    .emit(frame)
    .unwrap();
    header.emit(&mut frame[14..]).unwrap();
}

#[test]
fn directions_and_errors_of_a_flow_meet() {
    let mut pool = io::Pool::new(4, 2048, io::HugePages::Never).unwrap();
    let spread = Spread::new(FlowSecret::new([0x3c; 64]), WORKERS);
    let mut worker = |bytes: &[u8]| {
        let mut frame = pool.alloc().unwrap();
        assert!(frame.set_len(bytes.len()));
        frame.data_mut().copy_from_slice(bytes);
        let worker = spread.worker(&mut frame);
        pool.free(frame);
        worker.0
    };
    let mut flows = [0; WORKERS as usize];
    for i in 0..200 {
        let (client, server) = ([10, 0, 0, i], [10, 0, 1, 1]);
        let request = datagram(client, server, (4000 + u16::from(i), 53));
        let owner = worker(&request);
        assert_eq!(
            owner,
            worker(&datagram(server, client, (53, 4000 + u16::from(i))))
        );
        // The router in between is no end of the flow; its error is about it all the same.
        assert_eq!(owner, worker(&unreachable(&request, [192, 0, 2, 9])));
        flows[usize::from(owner)] += 1;
    }
    assert!(flows.iter().all(|flows| *flows > 10), "{flows:?}");
}
