//! Sockets as handles, and the tables that they index: a handle of a socket that is gone is detected.

use alloc::vec::Vec;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name { pub(crate) index: u32, pub(crate) generation: u32 }

        impl $name {
            /// Returns the handle as one number, for tables of the caller.
            pub const fn to_u64(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }
            /// Returns the handle that [`to_u64`](Self::to_u64) was made of.
            pub const fn from_u64(number: u64) -> Self {
                Self { index: number as u32, generation: (number >> 32) as u32 }
            }
        }
    )+};
}

handles! {
    /// Names a TCP connection.
    TcpHandle;
    /// Names a TCP listener.
    ListenerHandle;
    /// Names a UDP socket.
    UdpHandle;
}

/// Values by index and generation; the number of values is bounded.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    max: usize,
}

#[derive(Debug)]
pub(crate) struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// Makes a slab for at most `max` values; address space is reserved, memory is touched on demand.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            slots: Vec::with_capacity(max),
            free: Vec::new(),
            max,
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// Returns index and generation, or gives the value back when the slab is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<(u32, u32), T> {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.value = Some(value);
            return Ok((index, slot.generation));
        }
        if self.slots.len() >= self.max {
            return Err(value);
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        Ok((index, 0))
    }
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }
    /// Makes all handles of a slot stale, its value stays.
    pub(crate) fn renew(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize)
            && slot.value.is_some()
        {
            slot.generation = slot.generation.wrapping_add(1);
        }
    }
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }
    #[inline]
    pub(crate) fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation == generation {
            slot.value.as_ref()
        } else {
            None
        }
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation == generation {
            slot.value.as_mut()
        } else {
            None
        }
    }
    #[inline]
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slots
            .get(index as usize)
            .map_or(0, |slot| slot.generation)
    }
    /// Returns the slot for a prefetch.
    #[inline]
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.slots.get(index as usize)
    }
}
