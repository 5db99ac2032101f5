//! Fragments of datagrams for the node itself, gathered until they are whole (RFC 791 3.2, RFC 8200 4.5).
//!
//! Fragments are never copied together: a datagram may be longer than a frame. They wait as they came, in
//! their order, and what is asked of the whole (its checksum, the echo that it asks for) is done over the
//! row of them; an echo reply leaves in the fragments in which the request came.

pub mod node;
pub mod table;

pub use node::Reassemble;
