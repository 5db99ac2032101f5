//! Arithmetic that the kernel's verifier can follow, and the one kind of memory word that all sides share.
//!
//! The verifier proves each access from the ranges of registers. LLVM removes a mask that it thinks needless
//! and turns `i < n` into `i != n`; both take away what the verifier needs. [`opaque`] hides a value from LLVM,
//! so that the mask behind it stays. What the verifier knows of a value it carries along each path, and paths that
//! know different things do not merge: an Interest has thousands. Numbers that live beyond a branch are therefore
//! kept in [`Word`]s of the scratch memory, about whose contents the verifier knows nothing.

#[cfg(not(target_arch = "bpf"))]
use core::sync::atomic::{AtomicU64, Ordering};

/// Returns `value`, about which the optimiser knows nothing any more.
#[inline(always)]
#[cfg_attr(
    target_arch = "bpf",
    expect(unsafe_code, reason = "an empty instruction sequence")
)]
pub fn opaque(value: usize) -> usize {
    #[cfg(target_arch = "bpf")]
    {
        let mut value = value;
        // SAFETY: no instruction at all.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags))
        };
        value
    }
    #[cfg(not(target_arch = "bpf"))]
    value
}

/// Returns `value & MASK`, kept as an instruction.
#[inline(always)]
pub fn masked<const MASK: usize>(value: usize) -> usize {
    opaque(value) & MASK
}

/// Brings a length that is known to be in `1..=MASK + 1` into a form in which the verifier knows it too.
#[inline(always)]
pub fn nonzero<const MASK: usize>(length: usize) -> usize {
    opaque(opaque(length.wrapping_sub(1)) & MASK) + 1
}

/// A 64-bit word that kernel and user space read and write at the same time. Loads and stores are single
/// instructions without an order; [`Word::replace`] is a full barrier.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word {
    #[cfg(not(target_arch = "bpf"))]
    cell: AtomicU64,
    // LLVM has no relaxed atomic load for this instruction set; a volatile one is the same instruction.
    #[cfg(target_arch = "bpf")]
    cell: core::cell::UnsafeCell<u64>,
}

#[cfg(not(target_arch = "bpf"))]
impl Word {
    /// Reads the word.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.cell.load(Ordering::Relaxed)
    }
    /// Writes the word.
    #[inline(always)]
    pub fn store(&self, value: u64) {
        self.cell.store(value, Ordering::Relaxed);
    }
    /// Replaces `old` by `new` if it is there; tells whether it did.
    #[inline(always)]
    pub fn replace(&self, old: u64, new: u64) -> bool {
        let done = self
            .cell
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        // The instruction of BPF orders plain accesses too.
        core::sync::atomic::fence(Ordering::SeqCst);
        done
    }
}

#[cfg(target_arch = "bpf")]
impl Word {
    /// Reads the word.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        // SAFETY: the address of a living word.
        unsafe { self.cell.get().read_volatile() }
    }
    /// Writes the word.
    #[inline(always)]
    pub fn store(&self, value: u64) {
        // SAFETY: the address of a living word.
        unsafe { self.cell.get().write_volatile(value) }
    }
    /// Replaces `old` by `new` if it is there; tells whether it did.
    #[inline(always)]
    pub fn replace(&self, old: u64, new: u64) -> bool {
        let found: u64;
        // SAFETY: one instruction on a living word.
        unsafe {
            core::arch::asm!(
                "r0 = cmpxchg_64({cell} + 0, r0, {new})",
                cell = in(reg) self.cell.get(),
                new = in(reg) new,
                inout("r0") old => found,
                options(nostack),
            )
        };
        found == old
    }
}

impl Word {
    /// Reads the word as a length or an offset.
    #[inline(always)]
    pub fn number(&self) -> usize {
        self.load() as usize
    }
}
