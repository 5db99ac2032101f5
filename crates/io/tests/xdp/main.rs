//! AF_XDP on real veth pairs in network namespaces. Needs root; skipped, loudly, without.

mod filter;
mod frames;
mod kernel_traffic;
mod modes;
mod restart;
#[expect(
    unsafe_code,
    reason = "asks the kernel for sockets and sleeps in poll(2)"
)]
mod support;
