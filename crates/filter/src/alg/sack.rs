//! Selective acknowledgements of data whose sequence numbers are shifted.

use wire::checksum::update_u32;
use wire::{Layout, tcp};

/// The kind of the SACK option (RFC 2018 3).
const SACK: u8 = 5;

/// Turns the edges of all SACK blocks of a segment into numbers of the sender whose data is shifted, by `unshift`.
pub fn shift_blocks(frame: &mut [u8], layout: &Layout, unshift: impl Fn(u32) -> u32) {
    let header = frame.get_mut(layout.transport.into()..layout.payload.into());
    let Some((fixed, options)) =
        header.and_then(<[u8]>::split_first_chunk_mut::<{ tcp::HEADER_BYTES }>)
    else {
        return;
    };
    let mut at = 0;
    while let Some(&[kind, length]) = options.get(at..).and_then(<[u8]>::first_chunk::<2>) {
        match kind {
            0 => return,
            1 => {
                at += 1;
                continue;
            }
            SACK => {
                let mut edge = at + 2;
                while edge + 4 <= at + usize::from(length) {
                    shift_edge(fixed, options, edge, &unshift);
                    edge += 4;
                }
            }
            _ => {}
        }
        at += usize::from(length).max(2);
    }
}

fn shift_edge(
    fixed: &mut [u8; tcp::HEADER_BYTES],
    options: &mut [u8],
    at: usize,
    unshift: &impl Fn(u32) -> u32,
) {
    let Some(place) = options
        .get_mut(at..)
        .and_then(|rest| rest.first_chunk_mut::<4>())
    else {
        return;
    };
    let old = u32::from_be_bytes(*place);
    let new = unshift(old);
    *place = new.to_be_bytes();
    // At an odd offset, the bytes of a number count in the other halves of their words.
    let turn = if at % 2 == 1 { 8 } else { 0 };
    let sum = u16::from_be_bytes([fixed[tcp::CHECKSUM], fixed[tcp::CHECKSUM + 1]]);
    let sum = update_u32(sum, old.rotate_right(turn), new.rotate_right(turn));
    fixed[tcp::CHECKSUM..tcp::CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TcpFrame, V4};
    use crate::track::record::Shift;
    use wire::checksum::{TransportChecksum, verify_transport};
    use wire::tcp::{Flags, SackBlocks, TcpOption};

    #[test]
    fn blocks_are_shifted_at_odd_and_even_offsets() {
        let sack = TcpOption::Sack(SackBlocks::new(&[(1100, 1200), (2100, 2200)]));
        let nop = TcpOption::NoOperation;
        for options in [&[nop, nop, sack][..], &[nop, sack]] {
            let mut frame = TcpFrame {
                options,
                ..TcpFrame::new(V4, (1, 2), Flags::ACK)
            }
            .frame();
            let layout = wire::parse(&frame).unwrap();
            let shift = Shift {
                position: 1500,
                before: 0,
                after: 100,
            };
            shift_blocks(&mut frame, &layout, |edge| shift.unshift(edge));
            assert_eq!(verify_transport(&layout, &frame), TransportChecksum::Good);
            let view = tcp::View::new(&frame[layout.transport.into()..]).unwrap();
            let blocks = view.options().find_map(|option| match option {
                Ok(TcpOption::Sack(blocks)) => Some(blocks),
                _ => None,
            });
            assert_eq!(blocks.unwrap().as_slice(), &[(1100, 1200), (2000, 2100)]);
        }
    }
}
