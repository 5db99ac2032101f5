//! What the fuzz target of inspected protocols does with its input.

use std::net::SocketAddr;

use filter::alg::{self, Ends, Helper, dns};

/// Inspects a message. The first byte chooses the helper, the direction and the family; the rest is what is said. The
/// changes are in order and inside of the message, and what was changed reads as having nothing left to change.
pub fn alg_message(bytes: &[u8]) {
    let Some((&choice, message)) = bytes.split_first() else {
        return;
    };
    let from_client = choice & 1 != 0;
    let is_ipv6 = choice & 2 != 0;
    let Some(helper) = Helper::ALL.get(usize::from(choice >> 2) % Helper::ALL.len()) else {
        return;
    };
    let ends = ends(is_ipv6, from_client);
    let mut exposed = 0;
    let edits = alg::inspect(*helper, message, &ends, &mut |one| {
        exposed += 1;
        let port = one.endpoint.port().wrapping_mul(7) | 1;
        let seen = SocketAddr::new(ends.own_seen.ip(), port);
        Ok((one.endpoint.ip() == ends.own.ip()).then_some(seen))
    });
    assert!(exposed <= message.len());
    let start = message.get(..message.len().min(64)).unwrap_or_default();
    let _ = alg::is_promising(*helper, start, from_client);
    let _ = dns::Waiting::default().see(message, from_client);
    let Ok(edits) = edits else {
        return;
    };
    let mut last = 0;
    for edit in &edits {
        assert!(last <= edit.start && edit.start <= edit.end && edit.end <= message.len());
        last = edit.end;
    }
    let mut changed = vec![0; message.len() + edits.len() * alg::TEXT_BYTES];
    let len = alg::apply(message, &edits, &mut changed).expect("there is room");
    assert_eq!(len as isize, message.len() as isize + alg::growth(&edits));
    // To the receiver, the sender is what it says now: nothing of it is translated any more.
    let settled = Ends {
        own: ends.own_seen,
        peer_seen: ends.peer,
        ..ends
    };
    let again = alg::inspect(*helper, &changed[..len], &settled, &mut |one| {
        Ok((one.endpoint.ip() == settled.own.ip()).then_some(one.endpoint))
    });
    if let Ok(again) = again {
        for edit in &again {
            // No more than the spelling of an address that was as it should be.
            let old = &changed[edit.start..edit.end];
            assert!(
                old.len() >= edit.text.len() || old.contains(&b':'),
                "{edit:?}"
            );
        }
    }
}

fn ends(is_ipv6: bool, from_client: bool) -> Ends {
    let [own, own_seen, peer] = if is_ipv6 {
        [
            "[fd00::1]:5060",
            "[2001:db8::1]:40000",
            "[2001:db8:1::7]:5060",
        ]
    } else {
        ["10.0.0.1:5060", "203.0.113.1:40000", "198.51.100.7:5060"]
    };
    let endpoint = |text: &str| text.parse::<SocketAddr>().expect("an endpoint");
    Ends {
        own: endpoint(own),
        own_seen: endpoint(own_seen),
        peer_seen: endpoint(peer),
        peer: endpoint(peer),
        from_client,
    }
}
