//! A socket buffer, as the TC program and the filter read it.

use core::ffi::c_void;

use crate::common::helper;
use crate::shared::Packet;
use crate::shared::bounded::nonzero;
use crate::shared::frame::Window;

/// The start of `struct __sk_buff`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) len: u32,
    _others: [u32; 9],
    pub(crate) ifindex: u32,
}

const LOAD_BYTES: usize = 26;

/// The socket buffer.
pub(crate) struct Buffer {
    pub(crate) context: *mut Context,
}

impl Packet for Buffer {
    #[inline(always)]
    fn load(&self, window: &mut Window, length: usize) -> bool {
        let length = nonzero::<511>(length);
        // SAFETY: the verifier checks length and address.
        unsafe {
            helper!(LOAD_BYTES, fn(*const Context, u32, *mut c_void, u32) -> i64)(
                self.context,
                0,
                window.as_mut_ptr().cast(),
                length as u32,
            ) == 0
        }
    }
    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: the context of the run; the kernel writes the field.
        unsafe { (&raw const (*self.context).len).read_volatile() as usize }
    }
}
